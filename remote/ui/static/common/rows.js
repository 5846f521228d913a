// The rows of tables: sorted, searched, copied and saved.

import { announce } from "./announce.js";
import { element } from "./dom.js";
import { copy, csv, save, tsv } from "./export.js";
import { count, written } from "./format.js";

// matching returns the rows whose text has a part, those first whose text it is, and then those whose metric name it is.
export function matching(rows, textOf, part) {
  if (part === "") {
    return rows;
  }
  const small = part.toLowerCase();
  const ranks = [[], [], []];
  for (const row of rows) {
    const text = textOf(row);
    if (text.toLowerCase().includes(small)) {
      ranks[text === part ? 0 : text.split("{")[0] === part ? 1 : 2].push(row);
    }
  }
  return ranks.flat();
}

// texts orders texts with numbers in them as people would.
const texts = new Intl.Collator(undefined, { numeric: true });

// sorted returns rows in the order of their values, numbers as such, and NaN last in both directions. Equal ones stay as they are.
export function sorted(rows, value, ascending) {
  const direction = ascending ? 1 : -1;
  const order = (a, b) => (typeof a === "number" ? Number.isNaN(a) - Number.isNaN(b) || direction * (a < b ? -1 : a > b) : direction * texts.compare(a, b));
  return rows.map((row) => ({ row, key: value(row) })).sort((a, b) => order(a.key, b.key)).map(({ row }) => row);
}

// linesOf says how rows are copied: a line each, of the texts of columns.
export function linesOf(columns) {
  const copied = columns.filter(({ text }) => text !== false);
  const textOf = ({ text, value, cell }, row) => {
    const it = text ? text(row) : value ? value(row) : cell(row);
    return typeof it === "number" ? written(it) : it instanceof Node ? it.textContent : String(it ?? "");
  };
  return { titles: copied.map(({ title }) => title), of: (row) => [copied.map((column) => textOf(column, row))] };
}

// updates are those of the tables on the page, by their nodes.
const updates = new WeakMap();

// choices are what was chosen in them.
const choices = new WeakMap();

// updatable lets update(node, …) call a function for a table, and chosen(node) another.
export function updatable(node, change, choice) {
  updates.set(node, change);
  choices.set(node, choice);
  return node;
}

// chosen returns what was chosen in a table, for another one that takes its place: the sort, which is the title of a column and whether it
// is ascending, and the text of the search. Nothing has been chosen in what is no table.
export function chosen(node) {
  return choices.get(node)?.() ?? {};
}

// update shows newer rows in a table: in the order, with the search and at the place that were chosen. What says the same stays, and so does
// the focus. It returns false if node is no table with such columns and about as many rows.
export function update(node, columns, rows) {
  return updates.get(node)?.(columns, rows) ?? false;
}

// haveSameTitles says whether columns are those of the same table.
export function haveSameTitles(some, others) {
  return some.map(({ title }) => title).join("\n") === others.map(({ title }) => title).join("\n");
}

// tools are the buttons that take all rows along that are found, not only those of a page.
export function tools(caption, lines) {
  const copies = async () => {
    const all = lines();
    await copy(tsv(all)).then(() => announce(`${count(all.length - 1)} rows copied.`), (err) => announce(err.message));
  };
  const name = () => ["promtable", document.querySelector("main section:not([hidden])").id, ...(caption?.toLowerCase().match(/[a-z0-9]+/g) ?? []).slice(0, 5)].join("-");
  const of = caption ? ` of: ${caption}` : "";
  return element("div", { class: "table-tools" },
    element("button", { type: "button", title: "Copy all rows as tab-separated text", "aria-label": `Copy the rows${of}`, onclick: copies }, "Copy"),
    element("button", { type: "button", title: "Save all rows as a CSV file", "aria-label": `CSV${of}`, onclick: () => save(`${name()}.csv`, "text/csv", csv(lines())) }, "CSV"));
}
