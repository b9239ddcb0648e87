// The model's graph: drawn where Python placed it; zoomed, dragged, and linked with the table.

const canvas = find("canvas");
const world = find("world");
const view = { x: 0, y: 0, scale: 1 };
const detailed = 0.62; // below this scale nodes say but the op, in greater letters
const readable = 0.3; // below this one they are blocks of colour
const nodes = [];

function showGraph() {
  const { graph } = data;
  if (ops.length === 0) return;
  find("graph").hidden = false;
  drawEdges(graph.edges);
  ops.forEach((op, i) => nodes.push(drawNode(op, i, graph)));
  find("nodes").append(...nodes);
  showRegions();
  showDetails(null);
  fit();
  listenToGraph();
  listen("select", ({ op, from }) => {
    mark(op);
    showDetails(op);
    if (from !== "graph") reveal(op);
  });
  listen("filter", () => {
    find("edges").classList.toggle("filtered", isFiltered());
    nodes.forEach((node, i) => node.classList.toggle("dim", isFiltered() && !shown(i)));
  });
}

// Edges of a kind are one path: thousands of elements less.
function drawEdges(edges) {
  const paths = { edge: [], "edge crossing": [], "edge direct": [] };
  for (const [source, target, path, direct] of edges) {
    const crossing = ops[source].region !== ops[target].region;
    paths[direct ? "edge direct" : crossing ? "edge crossing" : "edge"].push(path);
  }
  for (const [kind, all] of Object.entries(paths)) {
    find("edges").append(svg("path", { class: kind, d: all.join("") }));
  }
}

function drawNode(op, i, { node: [width, height], positions }) {
  const [x, y] = positions[i];
  const number = op.region === null ? null : svg("text", { class: "tag", x: width - 7, y: 30 }, String(op.region + 1));
  return svg(
    "g",
    { class: `node ${colour(op.region)}`, "data-op": i, transform: `translate(${x - width / 2},${y - height / 2})` },
    svg("rect", { class: "box", width, height, rx: 5 }),
    number && svg("path", { class: "tab", d: `M4 0.7V${height - 0.7}` }),
    svg("text", { class: "op", x: 14, y: 16 }, cut(opName(op), 17)),
    svg("text", { class: "shape", x: 14, y: 30 }, cut(op.shape || op.dtype, 18)),
    svg("text", { class: "big", x: 16, y: 26 }, cut(opName(op), 11)),
    number,
  );
}

// --- Regions and details ---

function showRegions() {
  const host = ops.filter((op) => op.region === null);
  const macs = (list) => list.reduce((sum, op) => sum + (op.macs ?? 0), 0);
  const flow = (region) => `${region.bytes_in === null ? "?" : bytes(region.bytes_in)} in, ` +
    `${region.bytes_out === null ? "?" : bytes(region.bytes_out)} out`;
  const rows = regions.map((region, i) => regionRow(
    i, String(i), `${i + 1}  ${region.name}`, region.ops,
    `${region.macs === null ? "?" : short(region.macs)} MACs, ${flow(region)}`,
  ));
  if (host.length) rows.unshift(regionRow(null, "host", "on the host", host.length, `${short(macs(host))} MACs`));
  find("region-list").append(...rows);
  listen("filter", () => rows.forEach((row) => row.setAttribute("aria-pressed", row.dataset.where === state.where)));
}

function regionRow(region, key, name, count, flow) {
  return button(
    { class: "region", "aria-pressed": "false", "data-where": key, title: region === null ? "Ops on the host" : regions[region].name },
    () => filter({ where: state.where === key ? "all" : key }),
    swatch(region),
    html("span", { class: "name" }, name),
    html("span", {}, plural(count, "op")),
    html("span", { class: "flow" }, flow),
  );
}

function showDetails(i) {
  const details = find("details");
  if (i === null) {
    details.replaceChildren(html("p", { class: "note" }, "Select a node or a row to see its details."));
    return;
  }
  const links = (indices) => html("div", { class: "links" }, ...indices.slice(0, 40).map((other) =>
    button({ title: ops[other].name }, () => select(other, "details"), opName(ops[other]))));
  const facts = opFacts(ops[i]);
  if (ops[i].inputs.length) facts.push(["reads", links(ops[i].inputs)]);
  if (readers[i].length) facts.push(["read by", links(readers[i])]);
  details.replaceChildren(html("h3", {}, opName(ops[i])), factList(facts));
}

function mark(i) {
  const marks = find("marks");
  marks.replaceChildren();
  if (i === null) return;
  const { node: [width, height], positions, edges } = data.graph;
  const [x, y] = positions[i];
  const near = edges.filter(([source, target]) => source === i || target === i).map((edge) => edge[2]);
  marks.append(
    svg("path", { class: "edge marked", d: near.join("") }),
    svg("rect", { x: x - width / 2 - 3, y: y - height / 2 - 3, width: width + 6, height: height + 6, rx: 7 }),
  );
}

// --- Where one looks ---

function look(x, y, scale) {
  Object.assign(view, { x, y, scale: Math.min(4, Math.max(0.004, scale)) });
  world.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.scale})`);
  world.classList.toggle("near", view.scale >= detailed);
  world.classList.toggle("far", view.scale < readable);
  find("zoom-level").textContent = `${view.scale < 0.01 ? (view.scale * 100).toFixed(1) : Math.round(view.scale * 100)}\u202f%`;
}

function fit() {
  const { width, height } = data.graph;
  const scale = Math.min(canvas.clientWidth / width, canvas.clientHeight / height, 1.25);
  look((canvas.clientWidth - width * scale) / 2, (canvas.clientHeight - height * scale) / 2, scale);
}

// Zooms and keeps what is at (x, y), the middle by default, where it is.
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.004, view.scale * factor));
  const change = scale / view.scale;
  look(x - (x - view.x) * change, y - (y - view.y) * change, scale);
}

// Brings a node into sight, near enough to be read.
function reveal(i) {
  if (i === null) return;
  canvas.scrollIntoView({ block: "nearest" });
  const [x, y] = data.graph.positions[i];
  const here = [view.x + x * view.scale, view.y + y * view.scale];
  const inside = here[0] > 60 && here[0] < canvas.clientWidth - 60 && here[1] > 30 && here[1] < canvas.clientHeight - 30;
  if (inside && view.scale >= detailed) return;
  const scale = Math.max(view.scale, 0.8);
  glide(canvas.clientWidth / 2 - x * scale, canvas.clientHeight / 2 - y * scale, scale);
}

function glide(x, y, scale) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    look(x, y, scale);
    return;
  }
  const from = { ...view };
  const start = performance.now();
  const step = (now) => {
    const t = Math.min(1, Math.max(0, (now - start) / 220));
    const eased = t * (2 - t);
    const between = (a, b) => a + (b - a) * eased;
    look(between(from.x, x), between(from.y, y), between(from.scale, scale));
    if (t < 1) requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
}

// --- Pointer, wheel, keys ---

function listenToGraph() {
  find("zoom-in").addEventListener("click", () => zoom(1.4));
  find("zoom-out").addEventListener("click", () => zoom(1 / 1.4));
  find("zoom-fit").addEventListener("click", fit);
  listenToWheel();
  listenToPointers();
  listenToKeys();
  new ResizeObserver(keepMiddle()).observe(canvas);
  const opAt = (target) => target.closest("[data-op]")?.dataset.op ?? null;
  canvas.addEventListener("click", (event) => {
    const op = opAt(event.target);
    select(op === null ? null : Number(op), "graph");
  });
  hover(canvas, (target) => {
    const op = opAt(target);
    return op === null ? null : { key: `op${op}`, title: opName(ops[op]), facts: opFacts(ops[op]) };
  });
}

function listenToWheel() {
  // A page being scrolled does not turn into a zooming graph when the pointer gets over it.
  let scrolled = -Infinity;
  addEventListener("scroll", () => (scrolled = performance.now()), { passive: true });
  canvas.addEventListener("wheel", (event) => {
    if (performance.now() - scrolled < 250) return;
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 20 : 1);
    zoom(Math.exp(-Math.max(-240, Math.min(240, pixels)) / 400), event.offsetX, event.offsetY);
  }, { passive: false });
}

function listenToPointers() {
  const down = new Map();
  let moved = false;
  const middle = () => {
    const all = [...down.values()];
    return [all.reduce((sum, p) => sum + p[0], 0) / all.length, all.reduce((sum, p) => sum + p[1], 0) / all.length];
  };
  const spread = () => {
    const [a, b] = [...down.values()];
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  };
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, [event.clientX, event.clientY]);
    moved = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = down.get(event.pointerId);
    if (!at) return;
    if (!moved && Math.hypot(event.clientX - at[0], event.clientY - at[1]) < 4) return;
    if (!moved) canvas.setPointerCapture(event.pointerId);
    moved = true;
    canvas.classList.add("dragging");
    const [x, y] = middle();
    const before = spread();
    down.set(event.pointerId, [event.clientX, event.clientY]);
    const [newX, newY] = middle();
    look(view.x + newX - x, view.y + newY - y, view.scale);
    const box = canvas.getBoundingClientRect();
    if (before) zoom(spread() / before, newX - box.left, newY - box.top);
  });
  const release = (event) => {
    down.delete(event.pointerId);
    canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => moved || release(event));
  // The end of a drag is no click.
  canvas.addEventListener("click", (event) => {
    if (moved) event.stopImmediatePropagation();
    moved = false;
  }, { capture: true });
}

function listenToKeys() {
  const step = 60;
  const actions = {
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: fit,
    Escape: () => select(null, "graph"),
    ArrowLeft: () => look(view.x + step, view.y, view.scale),
    ArrowRight: () => look(view.x - step, view.y, view.scale),
    ArrowUp: () => look(view.x, view.y + step, view.scale),
    ArrowDown: () => look(view.x, view.y - step, view.scale),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  });
}

// A resized window keeps its middle in the middle; one that showed everything still does.
function keepMiddle() {
  let [width, height] = [canvas.clientWidth, canvas.clientHeight];
  let fitted = { ...view };
  return () => {
    if (!canvas.clientWidth || (canvas.clientWidth === width && canvas.clientHeight === height)) return;
    if (view.x === fitted.x && view.y === fitted.y && view.scale === fitted.scale) {
      fit();
      fitted = { ...view };
    } else {
      look(view.x + (canvas.clientWidth - width) / 2, view.y + (canvas.clientHeight - height) / 2, view.scale);
    }
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
  };
}
