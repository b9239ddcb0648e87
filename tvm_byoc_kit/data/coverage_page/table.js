// The table of ops: sorted by any column, filtered, usable with the keyboard.

const number = (value) => (value === null ? "?" : exact(value));
const columns = [
  { key: "position", title: "#", numeric: true, value: (op, i) => i, cell: (op, i) => String(i + 1) },
  { key: "op", title: "Op", value: (op) => opName(op), cell: (op) => opName(op) },
  { key: "name", title: "Name", value: (op) => op.name, cell: (op) => op.name },
  { key: "shape", title: "Shape", value: (op) => op.shape, cell: (op) => op.shape },
  { key: "dtype", title: "Dtype", value: (op) => op.dtype, cell: (op) => op.dtype },
  { key: "macs", title: "MACs", numeric: true, value: (op) => op.macs, cell: (op) => number(op.macs) },
  { key: "parameters", title: "Parameters", numeric: true, value: (op) => op.parameters, cell: (op) => number(op.parameters) },
  { key: "bytes", title: "Bytes", numeric: true, value: (op) => op.bytes, cell: (op) => number(op.bytes) },
  { key: "region", title: "Region", value: (op) => op.region, cell: regionCell },
  { key: "reason", title: "Composite or reason", value: (op) => op.reason?.text ?? op.composite ?? "", cell: reasonCell },
];
const body = document.querySelector("tbody");
const order = { column: columns[0], down: false };
const rows = new Array(ops.length);
const compareText = new Intl.Collator("en", { numeric: true }).compare;
const atOnce = 150; // rows before the first paint
let filling = 0;

function regionCell(op) {
  return html("span", { title: op.region === null ? null : regions[op.region].name }, swatch(op.region), ` ${whereName(op)}`);
}

function reasonCell(op) {
  return op.reason?.text ?? html("code", {}, op.composite ?? "");
}

function showTable() {
  document.querySelector("thead tr").append(...columns.map(headCell));
  showFilters();
  listenToRows();
  listen("filter", fillTable);
  listen("select", ({ op, from }) => selectRow(op, from));
  fillTable();
}

function headCell(column) {
  const label = button({}, () => sortBy(column), column.title);
  return html("th", { scope: "col", class: `col-${column.key}${column.numeric ? " number" : ""}`, "aria-sort": column === order.column ? "ascending" : "none" }, label);
}

// Numbers begin with the greatest, texts with the first.
function sortBy(column) {
  order.down = order.column === column ? !order.down : Boolean(column.numeric && column.key !== "position");
  order.column = column;
  document.querySelectorAll("thead th").forEach((cell, i) => {
    cell.setAttribute("aria-sort", columns[i] !== column ? "none" : order.down ? "descending" : "ascending");
  });
  fillTable();
}

// What is not known or empty comes last in either direction.
function sorted(indices) {
  const { value } = order.column;
  const keys = ops.map(value);
  const empty = (key) => key === null || key === "";
  const compare = (a, b) => (typeof a === "string" ? compareText(a, b) : a - b) * (order.down ? -1 : 1);
  return indices.sort((a, b) => {
    const [x, y] = [keys[a], keys[b]];
    if (empty(x) || empty(y)) return empty(x) - empty(y) || a - b;
    return compare(x, y) || a - b;
  });
}

function row(i) {
  rows[i] ??= html(
    "tr",
    { "data-op": i, tabindex: -1, "aria-selected": state.selected === i },
    ...columns.map(({ key, numeric, cell }) => {
      const content = cell(ops[i], i);
      const title = key === "name" || key === "op" ? (key === "op" ? ops[i].op : content) : null;
      return html("td", { class: `col-${key}${numeric ? " number" : ""}`, title }, content);
    }),
  );
  return rows[i];
}

// The first rows at once, the rest in steps, so that the page is there at once.
function fillTable() {
  const indices = sorted(ops.map((_, i) => i).filter(shown));
  const turn = ++filling;
  body.replaceChildren();
  document.body.dataset.rows = "filling";
  const step = (from, to) => {
    if (turn !== filling) return;
    body.append(...indices.slice(from, to).map(row));
    if (to < indices.length) setTimeout(step, 0, to, 4 * to);
    else document.body.dataset.rows = "ready";
  };
  step(0, atOnce);
  makeReachable(state.selected !== null && shown(state.selected) ? row(state.selected) : body.firstElementChild);
  find("nothing").hidden = indices.length > 0 || ops.length === 0;
  find("shown").textContent = indices.length === ops.length ? plural(ops.length, "op") : `${exact(indices.length)} of ${plural(ops.length, "op")}`;
  find("clear").hidden = !isFiltered();
}

// --- Filters ---

function showFilters() {
  const choices = [["all", "everywhere"], ["any", "in any region"], ["host", "on the host"],
    ...regions.map((region, i) => [String(i), cut(`${i + 1}  ${region.name}`, 44)])];
  find("where").append(...choices.map(([value, label]) => html("option", { value }, label)));
  find("search").addEventListener("input", ({ target }) => filter({ text: target.value }));
  find("where").addEventListener("change", ({ target }) => filter({ where: target.value }));
  find("host-only").addEventListener("change", ({ target }) => filter({ where: target.checked ? "host" : "all" }));
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("filters").addEventListener("reset", () => filter({ text: "", where: "all", reason: null }));
  listen("filter", () => {
    find("where").value = state.where;
    find("host-only").checked = state.where === "host";
  });
}

// --- Rows ---

function selectRow(i, from) {
  body.querySelector('[aria-selected="true"]')?.setAttribute("aria-selected", "false");
  if (i === null) return;
  row(i).setAttribute("aria-selected", "true");
  makeReachable(row(i));
  if (from !== "table" && row(i).isConnected) centre(row(i));
}

// Scrolls the table alone, so that the graph stays where it is.
function centre(line) {
  const box = find("table-scroll");
  box.scrollTop = line.offsetTop - box.clientHeight / 2;
}

// One row is in the tab order, the arrow keys lead to the others.
function makeReachable(line) {
  body.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  line?.setAttribute("tabindex", "0");
}

function listenToRows() {
  const at = (event) => event.target.closest("tr[data-op]");
  body.addEventListener("click", (event) => {
    if (getSelection().toString() === "" && at(event)) select(Number(at(event).dataset.op), "table");
  });
  const neighbours = {
    ArrowDown: (line) => line.nextElementSibling,
    ArrowUp: (line) => line.previousElementSibling,
    Home: () => body.firstElementChild,
    End: () => body.lastElementChild,
  };
  body.addEventListener("keydown", (event) => {
    const line = at(event);
    if (!line) return;
    if (neighbours[event.key]) {
      const next = neighbours[event.key](line) ?? line;
      makeReachable(next);
      next.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      select(Number(line.dataset.op), "table");
    } else if (event.key === "Escape") {
      select(null, "table");
    } else return;
    event.preventDefault();
  });
}
