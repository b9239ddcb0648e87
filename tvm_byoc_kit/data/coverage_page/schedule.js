// What the example NPU recorded: a timeline with a lane for each engine, and the traffic of its memories.

const laneHeight = 34;
const laneLeft = 76;
const opened = 4; // timelines that are open at first

function showSchedules() {
  find("schedules").hidden = data.schedules.length === 0;
  const first = (schedule) => callsOf(schedule)[0] ?? Infinity;
  const inOrder = [...data.schedules].sort((a, b) => (first(a) > first(b)) - (first(a) < first(b)));
  find("schedule-list").append(...inOrder.map(showSchedule));
}

const callsOf = (schedule) => regions.flatMap((region, i) => (region.function === schedule.symbol ? [i + 1] : []));

function showSchedule(schedule, i) {
  const calls = callsOf(schedule);
  const title = calls.length ? `Region ${calls.join(", ")}` : `Schedule ${i + 1}`;
  const time = `${exact(schedule.cycles)} cycles, ${microseconds(schedule.microseconds)} at ${schedule.frequency_mhz} MHz ` +
    `(${schedule.power_mode.replaceAll("_", " ")}), ${short(schedule.macs)} MACs, ${plural(schedule.ops.length, "op")}`;
  const content = html("div", { class: "body" });
  const details = html("details", { class: "schedule", open: i < opened },
    html("summary", {}, html("b", {}, title), time, html("code", { title: schedule.symbol }, schedule.symbol)),
    content);
  const fill = () => {
    if (!details.open || content.childElementCount) return;
    content.append(timeline(schedule), tiers(schedule));
  };
  details.addEventListener("toggle", fill);
  fill();
  return details;
}

const microseconds = (value) => value >= 1000
  ? `${(value / 1000).toLocaleString("en-US", { maximumSignificantDigits: 3 })}\u202fms`
  : `${value.toPrecision(3)}\u202f\u00b5s`;

// --- Timeline ---

function timeline(schedule) {
  const wide = html("div", { class: "wide" });
  let factor = 1;
  const draw = () => wide.replaceChildren(drawTimeline(schedule, Math.max(300, wide.clientWidth) * factor));
  const change = (by) => () => {
    factor = Math.max(1, factor * by);
    draw();
  };
  const area = html("div", { class: "timeline" },
    html("div", { class: "buttons", role: "group", "aria-label": "Zoom of the timeline" },
      button({ "aria-label": "Shorten the time axis" }, change(0.5), "\u2212"),
      button({ "aria-label": "Stretch the time axis" }, change(2), "+")),
    wide);
  new ResizeObserver(draw).observe(area);
  hover(wide, (target) => {
    const slot = target.closest("[data-slot]");
    return slot && slotFacts(schedule, Number(slot.dataset.slot));
  });
  return area;
}

function drawTimeline(schedule, width) {
  const engines = data.engines.filter((engine) => schedule.ops.some((op) => op.engine === engine));
  const height = engines.length * laneHeight + 24;
  const scale = (width - laneLeft - 24) / Math.max(1, schedule.cycles);
  const x = (cycle) => laneLeft + cycle * scale;
  const picture = svg("svg", { width, height, role: "img", "aria-label": `Timeline of ${schedule.symbol}` });
  for (const cycle of ticks(schedule.cycles, Math.max(2, Math.floor(width / 130)))) {
    picture.append(
      svg("path", { class: "grid", d: `M${x(cycle)} 0V${height - 20}` }),
      svg("text", { x: x(cycle), y: height - 6, "text-anchor": "middle" }, exact(cycle)));
  }
  picture.append(svg("text", { x: 0, y: height - 6 }, "cycle"));
  engines.forEach((engine, lane) => picture.append(
    svg("path", { class: "lane", d: `M0 ${(lane + 1) * laneHeight}H${width}` }),
    svg("text", { x: 0, y: lane * laneHeight + 21 }, engine)));
  schedule.ops.forEach((op, i) => picture.append(slot(op, i, engines.indexOf(op.engine) * laneHeight + 5, x, scale)));
  return picture;
}

function slot(op, i, top, x, scale) {
  const width = Math.max(2, op.cycles * scale);
  const height = laneHeight - 10;
  const busy = Math.min(1, op.compute_cycles / Math.max(1, op.cycles));
  const room = Math.floor((width - 10) / 6.4); // characters
  return svg("g", { class: `slot c${data.engines.indexOf(op.engine)}`, "data-slot": i },
    svg("rect", { x: x(op.start_cycle), y: top, width, height, rx: Math.min(3, width / 3) }),
    svg("rect", { class: "busy", x: x(op.start_cycle), y: top + height - 5, width: width * busy, height: 5 }),
    room > 5 ? svg("text", { x: x(op.start_cycle) + 6, y: top + 14 }, cut(op.name.replace(/^\w+\./, ""), room)) : null);
}

// Round numbers, at most `count` of them.
function ticks(end, count) {
  const rough = Math.max(1, end / count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, i) => i * step);
}

function slotFacts(schedule, i) {
  const op = schedule.ops[i];
  const moved = data.tiers.map((tier, t) => (op.moved_bytes[t] ? `${tier} ${bytes(op.moved_bytes[t])}` : null));
  const spilled = op.operands.filter((operand) => operand.spilled).map((operand) => `${operand.role} ${operand.name} to ${operand.tier}`);
  return {
    key: `slot ${schedule.symbol} ${i}`,
    title: op.name,
    facts: [
      ["ops", op.ops.map((name) => name.replace(/^relax\.(nn\.)?/, "")).join(", ")],
      ["engine", op.engine],
      ["cycles", `${exact(op.cycles)}, from ${exact(op.start_cycle)} on`],
      ["time", microseconds(op.cycles / schedule.frequency_mhz)],
      ["bound by", `${op.bound} (compute ${exact(op.compute_cycles)}, memory ${exact(op.memory_cycles)})`],
      ["MACs", op.macs ? exact(op.macs) : null],
      ["tiles", `${exact(op.tiling.tiles)} in ${op.tiling.tier}`],
      ["moved", moved.filter(Boolean).join(", ")],
      ["spilled", spilled.join("; ")],
    ],
  };
}

// --- Memories ---

function tiers(schedule) {
  const most = Math.max(1, ...schedule.tiers.map((tier) => tier.moved_bytes));
  const area = html("div", { class: "tiers" }, html("h3", {}, "Bytes through each memory"));
  for (const tier of schedule.tiers) {
    const meter = html("span", { class: "meter" }, html("i"));
    meter.firstChild.style.width = `${(100 * tier.moved_bytes) / most}%`;
    const size = tier.capacity_bytes < 0 ? "" : ` of ${bytes(tier.capacity_bytes)}`;
    area.append(html("div", { class: "tier", "data-tier": tier.name },
      html("b", {}, tier.name), meter, html("span", {}, bytes(tier.moved_bytes)),
      html("small", {}, `peak ${bytes(tier.peak_bytes)}${size}`)));
  }
  hover(area, (target) => {
    const name = target.closest("[data-tier]")?.dataset.tier;
    const tier = schedule.tiers.find((each) => each.name === name);
    return tier ? { key: `tier ${schedule.symbol} ${name}`, title: name, facts: tierFacts(tier) } : null;
  });
  return area;
}

function tierFacts(tier) {
  return [
    ["moved", `${exact(tier.moved_bytes)} bytes`],
    ["peak", `${exact(tier.peak_bytes)} bytes`],
    ["capacity", tier.capacity_bytes < 0 ? "not limited (DRAM)" : `${exact(tier.capacity_bytes)} bytes`],
    ["bandwidth", `${tier.bytes_per_cycle} bytes a cycle`],
    ["access", `${plural(tier.access_cycles, "cycle")} a transfer`],
  ];
}
