// The legend of a graph: its lines as a table, with the values under the cursor.

import { announce } from "../common/announce.js";
import { element, folded, isLong } from "../common/dom.js";
import { copy } from "../common/export.js";
import { table } from "../common/table.js";
import { swatch } from "./colours.js";
import { change, changeText } from "./comparison.js";

// legendOf lists lines, whose values text writes. shared are the labels that all have; compared says in words what they are compared with, if they are;
// isShown says whether a line is shown; onIsolate(line) and onToggle(line) are called for clicks. It returns the node, mark(at), which shows the values
// of a time, and refill(), which shows the lines as they are now.
export function legendOf(lines, { shared, text, compared, isShown, onIsolate, onToggle }) {
  const statistics = ["last", "min", "max", "avg", ...(compared ? ["thenAvg"] : [])];
  for (const line of lines) {
    line.cells = Object.fromEntries(["under", "change", ...statistics].map((name) => [name, element("span", {})]));
    line.cells.change.title = "Of the averages over the times at which both have a value";
    line.box = element("input", { type: "checkbox", "aria-label": `Show ${line.name}`, onchange: () => onToggle(line) });
    line.button = element("button", { type: "button", class: "line", title: "Show only this line; Ctrl+click hides or shows it",
      onclick: ({ ctrlKey, metaKey }) => (ctrlKey || metaKey ? onToggle : onIsolate)(line) },
    line.letter && element("b", {}, line.letter), line.letter && " ", clamped(line.label === "{}" ? line.name : line.label));
    line.copy = element("button", { type: "button", class: "copy", "aria-label": `Copy the selector ${line.name}`, title: "Copy the selector", onclick: () => copied(line) });
  }
  const statistic = (title, name) => ({ title, kind: "number", cell: (l) => l.cells[name], value: (l) => l[name] });
  const list = table(undefined, [
    { title: "Series", kind: "text", value: (l) => `${l.letter} ${l.name}`.trim(), cell: (l) =>
      element("div", { class: "line" }, element("label", {}, l.box, swatch(l)), l.button, l.copy) },
    { title: "Cursor", kind: "number", text: false, cell: (l) => l.cells.under },
    statistic("Last", "last"), statistic("Min", "min"), statistic("Max", "max"), statistic("Avg", "avg"),
    ...(compared ? [statistic(`Avg ${compared}`, "thenAvg"), { title: "Change", kind: "number", cell: (l) => l.cells.change, value: (l) => change(l.both.now, l.both.then) }] : []),
  ], lines);
  const mark = (at) => lines.forEach((line) => {
    if (line.cells.under.isConnected) { // the table has pages
      const v = at === null ? null : line.values[at] ?? null;
      line.cells.under.textContent = v === null ? "" : text(v);
    }
  });
  const refill = () => lines.forEach((line) => {
    for (const name of statistics) {
      line.cells[name].textContent = line[name] === undefined ? "" : text(line[name]);
      line.cells[name].title = String(line[name] ?? "");
    }
    line.cells.change.textContent = changeText(line.both.now, line.both.then);
    line.box.checked = isShown(line);
    line.button.classList.toggle("hidden-line", !isShown(line));
  });
  refill();
  const node = element("div", { class: "legend", "aria-live": "off" },
    shared && element("div", { class: "shared" }, "Common labels: ", element("code", {}, folded(shared))), list);
  return { node, mark, refill };
}

// clamped returns the label of a line: a few lines of a long one, which is whole in its tip.
function clamped(label) {
  return isLong(label) ? element("span", { class: "clamped", title: label }, label) : label;
}

// copied puts the selector of a line on the clipboard, and shows at its button that it is there.
function copied({ name, copy: button }) {
  copy(name).then(() => {
    button.classList.add("done");
    button.addEventListener("blur", () => button.classList.remove("done"), { once: true });
    announce("Selector copied.");
  }, (err) => announce(err.message));
}
