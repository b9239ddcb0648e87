// Data, elements, numbers, and what the parts of the page tell each other.

const data = JSON.parse(document.getElementById("data").textContent);
const { ops, regions } = data;
const readers = ops.map(() => []);
ops.forEach((op, i) => op.inputs.forEach((input) => readers[input]?.push(i)));

const find = (id) => document.getElementById(id);

// Names come from models: text and attributes are set as such, nothing is parsed as HTML.
function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const html = (tag, attributes = {}, ...children) =>
  build(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

function button(attributes, onClick, ...children) {
  const node = html("button", { type: "button", ...attributes }, ...children);
  node.addEventListener("click", onClick);
  return node;
}

// --- Numbers ---

const exact = (value) => value.toLocaleString("en-US");
const plural = (n, what) => `${exact(n)} ${what}${n === 1 ? "" : "s"}`;

function scaled(value, base, units) {
  let unit = 0;
  while (value >= (unit ? base * 0.9995 : base) && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[unit]].filter(Boolean).join("\u202f");
}
const short = (value) => scaled(value, 1000, ["", "k", "M", "G", "T", "P"]);
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const unknown = "depends on a symbolic dimension";

function percent(part, whole) {
  if (!whole) return "\u2013";
  const value = (100 * part) / whole;
  if (value === 0 || value === 100) return `${value}\u202f%`;
  // What is not all does not look like all, what is not nothing not like nothing.
  return `${Math.min(99.9, Math.max(0.1, value)).toFixed(1)}\u202f%`;
}

// --- Ops ---

const kinds = {
  no_pattern: "no pattern",
  refused: "refused",
  no_match: "no match",
  outside_dataflow: "outside dataflow",
  policy: "policy",
};
const opName = (op) => op.op.replace(/^relax\.(nn\.)?/, "");
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}\u2026` : text);
const whereName = (op) => (op.region === null ? "host" : `region ${op.region + 1}`);
const colour = (region) => (region === null ? "host" : `c${region % 7} d${Math.floor(region / 7) % 4}`);

function swatch(region) {
  return svg(
    "svg",
    { class: `swatch node ${colour(region)}`, viewBox: "0 0 22 16", "aria-hidden": "true" },
    svg("rect", { class: "box", x: 1, y: 1, width: 20, height: 14, rx: 3 }),
    region === null ? null : svg("path", { class: "tab", d: "M4.5 1V15" }),
  );
}

function opFacts(op) {
  const several = new Set(ops.map((each) => each.function)).size > 1;
  return [
    ["name", op.name],
    ["op", op.op],
    ["function", several ? op.function : null],
    ["result", [op.shape, op.dtype].filter(Boolean).join(" ")],
    ["MACs", op.macs === null ? unknown : exact(op.macs)],
    ["parameters", exact(op.parameters)],
    ["bytes", op.bytes === null ? unknown : exact(op.bytes)],
    ["region", op.region === null ? "none: on the host" : `${op.region + 1}, ${regions[op.region].name}`],
    ["composite", op.composite],
    ["kind", op.reason && (kinds[op.reason.kind] ?? op.reason.kind)],
    ["reason", op.reason?.text],
  ];
}

function factList(facts) {
  const list = html("dl", { class: "facts" });
  for (const [label, value] of facts) {
    if (value) list.append(html("dt", {}, label), html("dd", {}, value));
  }
  return list;
}

// --- What is selected, and which ops are shown ---

const state = { selected: null, text: "", where: "all", reason: null };
const places = { all: () => true, host: (op) => op.region === null, any: (op) => op.region !== null };

const searched = ops.map((op) =>
  [op.name, op.op, op.function, op.shape, op.dtype, op.composite, op.reason?.kind,
    op.reason?.text, whereName(op)].filter(Boolean).join("\n").toLowerCase(),
);

function shown(i) {
  const op = ops[i];
  const place = places[state.where] ?? (({ region }) => String(region) === state.where);
  return (
    place(op) &&
    (state.reason === null || reasonKey(op) === state.reason) &&
    state.text.toLowerCase().split(/\s+/).every((word) => searched[i].includes(word))
  );
}

const reasonKey = (op) => op.region === null ? JSON.stringify([op.op, op.reason?.kind, op.reason?.text]) : null;
const isFiltered = () => state.text.trim() !== "" || state.where !== "all" || state.reason !== null;

function tell(event, detail) {
  document.dispatchEvent(new CustomEvent(event, { detail }));
}
function listen(event, handler) {
  document.addEventListener(event, ({ detail }) => handler(detail));
}
function select(op, from) {
  state.selected = op;
  tell("select", { op, from });
}
function filter(change) {
  Object.assign(state, change);
  tell("filter");
}

// --- Hover ---

const tip = find("tip");

// `describe` gives title and facts for what is under the pointer, or null.
function hover(area, describe) {
  area.addEventListener("pointermove", (event) => {
    const found = event.pointerType === "touch" || event.buttons ? null : describe(event.target);
    tip.hidden = found === null;
    if (found === null) return;
    if (tip.dataset.key !== found.key) {
      tip.dataset.key = found.key;
      tip.replaceChildren(html("h3", {}, found.title), factList(found.facts));
    }
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 16 + width < innerWidth;
    const below = event.clientY + 16 + height < innerHeight;
    const x = right ? event.clientX + 16 : Math.max(4, event.clientX - 16 - width);
    const y = below ? event.clientY + 16 : Math.max(4, event.clientY - 16 - height);
    tip.style.transform = `translate(${x}px, ${y}px)`;
  });
  area.addEventListener("pointerleave", () => (tip.hidden = true));
}
