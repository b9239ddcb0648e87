// The head of the page: what was partitioned, totals, and why ops stayed on the host.

function showHead() {
  const file = data.model.split(/[\\/]/).at(-1);
  find("model").textContent = file || "Model";
  if (data.backend) find("subject").append("on ", html("b", {}, data.backend));
  if (file !== data.model) find("subject").append(html("span", { class: "path" }, data.model));
  find("versions").textContent = Object.entries(data.versions)
    .flatMap(([name, version]) => (version ? [`${name} ${version}`] : []))
    .join(" \u00b7 ");
}

function total(title, figure, line, share = null) {
  const meter = share === null ? null : html("span", { class: "meter", "aria-hidden": "true" }, html("i"));
  if (meter) meter.firstChild.style.width = `${100 * share}%`;
  return html("div", { class: "total" }, html("h2", {}, title), html("strong", {}, figure), meter, html("p", {}, line));
}

function share(title, { offloaded, total: whole, unknown: open = 0 }, format, rest) {
  const some = open ? `; ${plural(open, "op")} with symbolic dimensions not counted` : "";
  const line = `${format(offloaded)} of ${format(whole)} ${rest}${some}`;
  return total(title, percent(offloaded, whole), line, whole ? offloaded / whole : 0);
}

function showTotals() {
  const { totals } = data;
  const crossing = totals.boundary;
  find("totals").append(
    share("Ops offloaded", totals.ops, exact, "ops"),
    share("MACs offloaded", totals.macs, short, "MACs"),
    share("Result bytes in regions", totals.bytes, bytes, "of results"),
    total("Regions", exact(regions.length), regions.length ? `calls of ${plural(totals.functions, "function")}` : "nothing is offloaded"),
    total(
      "Across boundaries",
      regions.length && crossing.known === 0 ? "\u2013" : bytes(crossing.in + crossing.out),
      crossing.known < regions.length
        ? `${plural(regions.length - crossing.known, "region")} with symbolic dimensions not counted`
        : `${bytes(crossing.in)} in, ${bytes(crossing.out)} out, at each run`,
    ),
  );
}

const reasonsAtFirst = 6;

function showReasons() {
  const groups = new Map();
  for (const op of ops) {
    if (op.region !== null) continue;
    const key = reasonKey(op);
    groups.set(key, { op, count: (groups.get(key)?.count ?? 0) + 1 });
  }
  const sorted = [...groups].sort(([, a], [, b]) => b.count - a.count);
  const rows = sorted.map(([key, { op, count }]) =>
    html("li", {}, button(
      { "aria-pressed": "false", "data-key": key, title: "Show these ops" },
      () => filter({ reason: state.reason === key ? null : key }),
      html("span", { class: "count" }, exact(count)),
      html("span", { class: "what mono" }, opName(op)),
      html("span", { class: "text" }, op.reason?.text ?? "no reason recorded"),
      html("span", { class: "kind" }, kinds[op.reason?.kind] ?? op.reason?.kind ?? ""),
    )),
  );
  find("reason-list").append(...rows);
  find("reasons").hidden = rows.length === 0;

  const more = find("more-reasons");
  const rest = rows.slice(reasonsAtFirst);
  rest.forEach((row) => (row.hidden = true));
  more.hidden = rest.length === 0;
  more.textContent = `Show ${plural(rest.length, "more reason")}`;
  more.addEventListener("click", () => {
    rest.forEach((row) => (row.hidden = false));
    more.hidden = true;
  });
  listen("filter", () => {
    for (const row of find("reason-list").querySelectorAll("button")) {
      row.setAttribute("aria-pressed", row.dataset.key === state.reason);
    }
  });
}
