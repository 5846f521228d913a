// How an expression is evaluated, and what its selectors read.

import { ask, range } from "../common/api.js";
import { element, message, tiles } from "../common/dom.js";
import { count, time } from "../common/format.js";
import { bytes, formatDuration, humanizeDuration } from "../common/quantities.js";
import { link } from "../common/selectors.js";
import { table } from "../common/table.js";
import { makeField } from "../query/expressionfield.js";
import { stepsOf } from "../query/requests.js";
import { sourceOf } from "../query/resolution.js";
import { readsIn } from "../query/syntaxtrees.js";

let editor;
let last = {}; // the state that is in the form

// read and fill know the parameter selector of old links, and the step of the query that a link comes from.
export function read(form) {
  return { expr: editor?.text.trim() ?? "", selector: "", step: form.dataset.step ?? "" };
}

export function fill(form, state) {
  if (!editor) {
    const field = makeField({
      label: "Expression to explain", placeholder: 'sum by (job) (rate(http_requests_total{code=~"5.."}[5m]))',
      onRun: () => form.requestSubmit(), times: () => range(last),
    });
    ({ editor } = field);
    form.prepend(field.node);
  }
  last = state;
  form.dataset.step = state.step;
  editor.text = state.expr || state.selector;
}

export async function show(state, result, signal) {
  const expr = (state.expr || state.selector).trim();
  if (expr === "") {
    result.replaceChildren(...["Explain shows what the adapter evaluates while it reads series, and what Prometheus' engine evaluates over the results.",
      "For each selector it looks up series in the index, and reads and counts their rows. The expression itself is not evaluated."]
      .map((text) => element("p", { class: "hint" }, text)));
    return;
  }
  const times = range(state);
  const asked = { query: expr, ...(state.view === "table" ? { time: times.end } : stepsOf(times.start, times.end, state.step)) };
  let answer;
  try {
    answer = await ask("explain", { ...asked, ...(state.res && { max_source_resolution: state.res }) }, { signal, post: true });
  } catch (err) {
    const marked = signal.aborted ? undefined : markError(expr, err.message);
    editor.mark(err);
    if (!marked) {
      throw err;
    }
    result.replaceChildren(message("error", err.message), marked);
    return;
  }
  editor.mark();
  const { total, tree } = answer.data;
  result.replaceChildren(
    element("p", { class: "facts" }, whenText(answer.data), " ", cachedText(answer.data.cache), " ", element("a", { href: runLink(state, expr) }, "Run the query")),
    totals(total, sum(readsIn(tree), (r) => r.seconds)),
    ...(rollupDays(total) > 0 ? [comparison(asked, answer.data, signal)] : []),
    treeOf(tree, signal));
}

// markError shows where in the expression an error is, if its text says a line and a column.
function markError(expr, text) {
  const [, line, column] = /(?:^|: )(\d+):(\d+): /.exec(text) ?? [];
  const found = expr.split("\n")[line - 1];
  if (found === undefined) {
    return undefined;
  }
  return element("pre", { class: "marked", "aria-label": `The error is in line ${line}, column ${column}.` }, `${found}\n${" ".repeat(Math.min(column - 1, found.length))}^`);
}

function runLink({ range, end, view, res, step }, expr) {
  return link("query", { expr, range, end, view, res, step });
}

// explainLink returns a link from a query to its explanation.
export function explainLink({ range, end, view, res, step }, expr) {
  return element("a", { class: "explain", href: link("explain", { expr, range, end, view, res, step }) }, "Explain");
}

function whenText({ start, end, step }) {
  return step === 0 ? `At ${time(end / 1000)}.` : `From ${time(start / 1000)} to ${time(end / 1000)}, step ${formatDuration(step / 1000)}.`;
}

function cachedText({ eligible, reason, steps, steps_cached: cached }) {
  return eligible ? `${count(cached)} of ${count(steps)} steps are in the results cache.`
    : `The results cache is not used: ${reason}.`;
}

// totals shows what was read, large.
function totals(total, seconds) {
  const days = (n) => `${count(n)} series-days`;
  return tiles(
    ["Series", count(total.series)],
    ["Rows of INDEX read", count(total.index_rows)],
    ["Rows of METRIC read", count(total.rows)],
    ["Cells of METRIC read", count(total.cells)],
    ["Bytes of METRIC read", bytes(total.bytes)],
    ...(total.rollup_days_5m ? [["Rollups of 5m", days(total.rollup_days_5m)]] : []),
    ...(total.rollup_days_1h ? [["Rollups of 1h", days(total.rollup_days_1h)]] : []),
    ...(total.rollup_days_missing ? [["Read as samples, no rollup", days(total.rollup_days_missing)]] : []),
    ...(total.widened ? [["Windows widened to rollups", "yes"]] : []),
    ["Read time", humanizeDuration(seconds)],
    ...(total.node_seconds === undefined ? [] : [["Bigtable node time", humanizeDuration(total.node_seconds)]]));
}

function rollupDays(total) {
  return (total.rollup_days_5m ?? 0) + (total.rollup_days_1h ?? 0);
}

// comparison is a button that asks what the same would read without rollups.
function comparison(asked, data, signal) {
  const node = element("p", {});
  const compare = async () => {
    node.setAttribute("aria-busy", "true");
    try {
      const { data: raw } = await ask("explain", { ...asked, max_source_resolution: "0s" }, { signal, post: true });
      node.replaceWith(compared(data, raw));
    } catch (err) {
      if (!signal.aborted) {
        node.replaceChildren(message("error", err.message));
      }
    }
  };
  node.append(element("button", { type: "button", onclick: compare }, "Compare with raw samples"), " ",
    element("span", { class: "hint" }, "This reads all samples of the range."));
  return node;
}

function compared(data, raw) {
  const of = (x) => ({ ...x.total, seconds: sum(readsIn(x.tree), (r) => r.seconds) });
  const [a, b] = [of(data), of(raw)];
  const rows = [["Rows of METRIC", "rows", count], ["Cells of METRIC", "cells", count], ["Bytes", "bytes", bytes], ["Read time", "seconds", humanizeDuration],
    ["Bigtable node time", "node_seconds", humanizeDuration]].filter(([, name]) => a[name] !== undefined);
  return element("div", { class: "compared" }, table("With and without rollups", [
    { title: "Read", cell: ([title]) => title },
    { title: "With rollups", kind: "number", cell: ([, name, format]) => format(a[name]) },
    { title: "Raw samples", kind: "number", cell: ([, name, format]) => format(b[name]) },
    { title: "Ratio", kind: "number", cell: ([, name]) => (a[name] > 0 ? `${count(b[name] / a[name])}×` : "–") },
  ], rows));
}

function treeOf(tree, signal) {
  const nodes = element("ul", { class: "tree" }, nodeOf(tree, signal, tree));
  const all = (open) => nodes.querySelectorAll("details.node").forEach((d) => { d.open = open; });
  return element("div", {},
    element("h2", {}, "Evaluation"),
    element("p", { class: "pages", role: "group", "aria-label": "Tree" },
      element("button", { type: "button", onclick: () => all(true) }, "Open all"),
      element("button", { type: "button", onclick: () => all(false) }, "Close all")),
    nodes);
}

// nodeOf shows a node of the tree and all below it.
function nodeOf(x, signal, root) {
  const heading = [element("code", {}, x.expr), " ", element("span", { class: "kind" }, x.kind === "literal" ? x.type : `${x.kind}, ${x.type}`)];
  const children = x.children ?? [];
  if (x.kind === "literal") {
    return element("li", {}, element("div", { class: "leaf" }, ...heading));
  }
  return element("li", { class: x.streamed ? "streamed" : undefined }, element("details", { class: "node", open: true },
    element("summary", {}, ...heading),
    element("p", { class: "meaning" }, meaning(x)),
    ...(x.read ? readOf(x, signal, x === root) : []),
    children.length > 0 ? element("ul", {}, ...children.map((child) => nodeOf(child, signal, root))) : undefined));
}

// meaning says in a sentence how a node is evaluated.
function meaning({ kind, streamed, in_streamed: inStreamed, not_streamed: reason, read }) {
  if (streamed) {
    return `Evaluated while series are read${streamed === "selector" ? "" : `: ${streamed}`}.`;
  }
  if (inStreamed) {
    return read ? "Read, and evaluated as part of the node above." : "Evaluated while series are read, as part of the node above.";
  }
  if (!reason) {
    return kind === "function" || kind === "operator" ? "Evaluated by Prometheus' engine. It reads no series." : "Evaluated by Prometheus' engine.";
  }
  const [, why, over] = /^(.*?)(?:: Prometheus' engine evaluates it(.*))?$/s.exec(reason);
  return `Evaluated by Prometheus' engine${over ?? ""}, because ${why}.`;
}

// readOf shows what a selector reads.
function readOf({ read }, signal, isRoot) {
  const partsOf = read.parts ?? [];
  const details = element("details", { class: "rows" }, element("summary", {}, "Index lists and ranges of rows"));
  const load = async () => {
    try {
      const { data: [found] } = await ask("explain", { "match[]": read.selector, start: read.mint / 1000, end: read.maxt / 1000 }, { signal });
      details.append(...ranges(found));
    } catch (err) {
      if (!signal.aborted) {
        details.append(message("error", err.message));
      }
    }
  };
  details.addEventListener("toggle", () => details.open && load(), { once: true });
  details.open = isRoot && rollupDays(read) === 0;
  return [
    element("dl", { class: "read" }, ...[
      ["Selector", element("code", {}, read.selector)],
      ["Times", `${time(read.mint / 1000)} – ${time(read.maxt / 1000)}`],
      ["Read", `${amount(read)}, in ${humanizeDuration(read.seconds)}`],
      ...(read.node_seconds === undefined ? [] : [["Cost", `${humanizeDuration(read.node_seconds)} of a Bigtable node`]]),
      ...(rollupDays(read) > 0 || read.rollup_days_missing ? [["Rollups", rollupText(read)]] : []),
      ...(partsOf.length > 0 ? [["Values from", element("ul", {}, ...partsOf.slice(0, 10).map((p) => element("li", {}, partText(p))),
        ...(partsOf.length > 10 ? [element("li", {}, `and ${count(partsOf.length - 10)} more`)] : []))]] : []),
      ["Index", element("ul", {}, ...listTexts(read).map((text) => element("li", {}, text)))],
    ].map(([title, value]) => element("div", {}, element("dt", {}, title), element("dd", {}, value)))),
    details,
  ];
}

function amount({ series, rows, cells, bytes: size }) {
  return `${count(series)} series, ${count(rows)} rows of METRIC with ${count(cells)} cells, ${bytes(size)}`;
}

function rollupText({ rollup_days_5m: fine = 0, rollup_days_1h: coarse = 0, rollup_days_missing: missing = 0, widened }) {
  const parts = [[coarse, "1h"], [fine, "5m"]].filter(([n]) => n > 0).map(([n, name]) => `${count(n)} series-days from rollups of ${name}`);
  return [parts.join(", "), missing > 0 && `${count(missing)} series-days had no usable rollup, so samples were read`,
    widened && "windows are widened to whole rollups where samples are deleted"].filter(Boolean).join("; ");
}

function partText(p) {
  const source = sourceOf(p).text;
  return p.from === p.to ? `${source} at ${time(p.to / 1000)}` : `${source} from ${time(p.from / 1000)} to ${time(p.to / 1000)}`;
}

// listTexts says what became of each index list.
function listTexts({ lists }) {
  if (lists.length === 0) {
    return ["No index list was read: no samples of this range are stored, or the selector matches nothing."];
  }
  const isOnly = lists.length === 1;
  return lists.map(({ matcher, chosen, in_memory: inMemory, rows_read: rows, series: entries }) => {
    const list = `The list of ${matcher}`;
    if (chosen && rows === 0 && inMemory > 0) {
      return `${list} was in memory, with ${entriesText(entries)}${isOnly ? "" : ". It is the shortest list, so its series are checked against the other matchers"}.`;
    }
    if (chosen) {
      return `${list} was read to its end, ${count(rows)} rows${isOnly ? "" : ", because it was the first of the lists read in parallel to end"}. It had ${entriesText(entries)}.`;
    }
    if (rows > 0) {
      return `${list} was abandoned after ${count(rows)} rows, because another list was shorter.`;
    }
    return inMemory > 0 ? `${list} was in memory and is not the shortest.` : `${list} was not needed.`;
  });
}

function entriesText(n) {
  return n === 1 ? "1 entry" : `${count(n)} entries, one for each series and index period`;
}

// ranges shows the lists and the rows of a selector.
function ranges(x) {
  return [
    table("Index lists; the chosen one was the shortest in memory or the first to end", [
      { title: "Matcher", kind: "text", cell: (l) => l.matcher, value: (l) => l.matcher },
      { title: "Chosen", cell: (l) => (l.chosen ? "yes" : "") },
      { title: "Lists in memory", kind: "number", cell: (l) => count(l.in_memory), value: (l) => l.in_memory },
      { title: "Rows read", kind: "number", cell: (l) => count(l.rows_read), value: (l) => l.rows_read },
      { title: "Ranges of INDEX", kind: "key", cell: (l) => indexRanges(l.ranges) },
    ], x.lists, (l) => (l.chosen ? "chosen" : undefined)),
    table("Ranges of METRIC, for samples", [
      { title: "From", kind: "key", cell: (r) => visible(r.start), value: (r) => r.start },
      { title: "To (exclusive)", kind: "key", cell: (r) => visible(r.limit), value: (r) => r.limit },
      { title: "Times read", kind: "time", cell: rowTimes, value: (r) => r.mint },
      { title: "Rows", kind: "number", cell: (r) => count(r.rows), value: (r) => r.rows },
      { title: "Cells", kind: "number", cell: (r) => count(r.cells), value: (r) => r.cells },
    ], x.rows),
  ];
}

function rowTimes(r) {
  return element("div", {}, `${time(r.mint / 1000)} –`, element("br"), time(r.maxt / 1000));
}

// maxRanges is how many ranges of a list are shown.
const maxRanges = 20;

function indexRanges(all) {
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
