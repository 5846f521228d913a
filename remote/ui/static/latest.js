// The current sample of every series, from one pass over CURRENT.

import { ask } from "./api.js";
import { element, message, table } from "./dom.js";
import { count, duration, sample, series } from "./format.js";

export async function show(state, result, signal) {
  const parameters = { limit: state.limit };
  const selector = selectorOf(state.filter.trim());
  if (selector) {
    parameters["match[]"] = selector;
  }
  const { data } = await ask("current", parameters, { signal });
  const now = Date.now() / 1000;
  const rows = data.samples.map((s) => ({ ...sample(s), name: series(s.metric) }));
  const facts = element("p", { class: "facts" },
    `${count(rows.length)} series, ${count(data.rowsRead)} rows of CURRENT read and no samples`);
  if (rows.length === 0) {
    result.replaceChildren(facts, element("p", {}, "No series matches."));
    return;
  }
  const more = data.truncated ? [message("warning", "There are more series than are shown: narrow the filter, or show more.")] : [];
  result.replaceChildren(facts, ...more, table(undefined, [
    { title: "Series", kind: "text", cell: link, value: (r) => r.name },
    { title: "Value", kind: "number", cell: (r) => r.text, value: (r) => r.number },
    { title: "Age", kind: "number", cell: (r) => duration(now - r.t), value: (r) => now - r.t },
  ], rows));
}

// selectorOf takes a selector as it is; other text is a part of a metric name.
function selectorOf(filter) {
  if (filter === "" || filter.includes("{")) {
    return filter;
  }
  const escaped = filter.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return `{__name__=~${JSON.stringify(`(?i).*${escaped}.*`)}}`;
}

function link({ name }) {
  return element("a", { href: `?${new URLSearchParams({ tab: "query", expr: name, view: "graph" })}` }, name);
}
