// Which rows a selector reads.

import { ask, range } from "../common/api.js";
import { element, table, tiles } from "../common/dom.js";
import { count, time } from "../common/format.js";

export async function show(state, result, signal) {
  const selector = state.selector.trim();
  if (selector === "") {
    result.replaceChildren(element("p", { class: "hint" },
      "A selector is answered from the index first. The shortest list of a matcher in memory is the answer; else their postings are read side by side, and the list that ends first is. Then the rows of those series are read."));
    return;
  }
  const { start, end } = range(state);
  const { data } = await ask("explain", { "match[]": selector, start, end }, { signal });
  result.replaceChildren(...data.flatMap(explanation));
}

function explanation(x) {
  const rowsRead = sum(x.rows, (r) => r.rows);
  const indexRows = sum(x.lists, (l) => l.rows_read);
  return [
    element("h2", {}, element("code", {}, x.selector)),
    element("p", { class: "facts" }, `from ${time(x.mint / 1000)} to ${time(x.maxt / 1000)}`),
    tiles(["Series", count(x.series)], ["Rows of INDEX read", count(indexRows)], ["Rows of METRIC read", count(rowsRead)],
      ["Cells of METRIC read", count(sum(x.rows, (r) => r.cells))]),
    table("Index lists; the chosen one was the shortest in memory or ended first, the others were left where they were", [
      { title: "Matcher", kind: "text", cell: (l) => l.matcher, value: (l) => l.matcher },
      { title: "Chosen", cell: (l) => (l.chosen ? "yes" : "") },
      { title: "Lists in memory", kind: "number", cell: (l) => count(l.in_memory), value: (l) => l.in_memory },
      { title: "Rows read", kind: "number", cell: (l) => count(l.rows_read), value: (l) => l.rows_read },
      { title: "Ranges of INDEX", kind: "key", cell: (l) => ranges(l.ranges) },
    ], x.lists, (l) => (l.chosen ? "chosen" : undefined)),
    table("Ranges of METRIC", [
      { title: "From", kind: "key", cell: (r) => visible(r.start), value: (r) => r.start },
      { title: "Up to, not with", kind: "key", cell: (r) => visible(r.limit), value: (r) => r.limit },
      { title: "Times read", kind: "time", cell: times, value: (r) => r.mint },
      { title: "Rows", kind: "number", cell: (r) => count(r.rows), value: (r) => r.rows },
      { title: "Cells", kind: "number", cell: (r) => count(r.cells), value: (r) => r.cells },
    ], x.rows),
  ];
}

function times(r) {
  return element("div", {}, `${time(r.mint / 1000)} –`, element("br"), time(r.maxt / 1000));
}

// maxRanges is how many ranges of a list are shown.
const maxRanges = 20;

function ranges(all) {
  const shown = all.slice(0, maxRanges).map((r) => element("div", {}, `[${visible(r.start)}, ${visible(r.limit)})`));
  if (all.length > maxRanges) {
    shown.push(element("div", {}, `and ${count(all.length - maxRanges)} more`));
  }
  return element("div", {}, ...shown);
}

// visible shows the NUL that ends the range of a single row.
function visible(key) {
  return key === "" ? "∞" : key.replaceAll("\0", "\\0");
}

function sum(list, of) {
  return list.reduce((total, x) => total + of(x), 0);
}
