// The current sample of every series, from one pass over CURRENT. Many are a list that is scrolled.

import { ask } from "../common/api.js";
import { element, message, selecting } from "../common/dom.js";
import { count, sample, series } from "../common/format.js";
import { roughDuration } from "../common/quantities.js";
import { chosen, update } from "../common/rows.js";
import { link } from "../common/selectors.js";
import { table } from "../common/table.js";
import { virtualTable } from "../common/virtualtable.js";
import { refresh } from "../query/refresh.js";

// fewRows is up to how many rows are all shown.
const fewRows = 200;

export async function show(state, result, signal) {
  const problems = element("div", {}), facts = element("p", { class: "facts" });
  let shown, last, wasCut; // last is the last one that had rows
  const paint = async () => {
    const { text, isCut, rows, columns } = await read(state, signal);
    facts.textContent = text;
    if (isCut === wasCut && update(shown, columns, rows)) {
      return;
    }
    shown = rows.length === 0 ? element("p", {}, "No series matches.") : rows.length > fewRows ? virtualTable("Series", columns, rows, chosen(last))
      : table(undefined, columns, rows, undefined, { chosen: chosen(last) });
    last = rows.length === 0 ? last : shown;
    wasCut = isCut;
    result.replaceChildren(problems, facts, ...(isCut ? [message("warning", "Not all series are shown: narrow the filter or raise the limit.")] : []), shown);
  };
  await paint();
  refresh(state.refresh, paint, () => selecting(result), problems, signal);
}

// read returns the rows that a state asks for, and what there is to say of them.
async function read(state, signal) {
  const limit = Number(state.limit);
  const answers = await Promise.all(selectorsOf(state.filter.trim()).map((selector) =>
    ask("current", { limit, ...(selector && { "match[]": selector }) }, { signal })));
  const now = Date.now() / 1000;
  const samples = answers.flatMap(({ data }) => data.samples);
  const rows = samples.slice(0, limit).map((s) => ({ ...sample(s), name: series(s.metric) }));
  const columns = [
    { title: "Series", kind: "text", cell: ({ name }) => element("a", { href: link("query", { expr: name, view: "graph" }), title: name }, name), value: (r) => r.name },
    { title: "Value", kind: "number", cell: (r) => r.text, value: (r) => r.number },
    { title: "Age", kind: "number", cell: (r) => roughDuration(now - r.t), value: (r) => now - r.t },
  ];
  return { text: `${count(rows.length)} series`,
    isCut: samples.length > limit || answers.some(({ data }) => data.truncated), rows, columns };
}

// selectorsOf takes a selector as it is; other text is a metric name, and then a part of others.
function selectorsOf(filter) {
  if (filter === "" || filter.includes("{")) {
    return [filter];
  }
  const name = JSON.stringify(filter);
  const escaped = filter.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return [`{__name__=${name}}`, `{__name__!=${name}, __name__=~${JSON.stringify(`(?i).*${escaped}.*`)}}`];
}
