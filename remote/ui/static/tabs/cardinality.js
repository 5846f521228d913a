// What makes so many series, from the index.

import { ask } from "../common/api.js";
import { element, table, tiles } from "../common/dom.js";
import { bytes, count, time } from "../common/format.js";

export async function show(state, result, signal) {
  const { data } = await ask("status/tsdb", { limit: state.top }, { signal });
  const head = data.headStats;
  result.replaceChildren(
    tiles(["Series", count(head.numSeries)], ["Label pairs", count(head.numLabelPairs)],
      ["Index period from", time(head.minTime / 1000)], ["to", time(head.maxTime / 1000)]),
    element("div", { class: "tables" },
      counts("Series of a metric", "Metric", "Series", data.seriesCountByMetricName, { of: "all series", total: head.numSeries, selectorOf: metricSelector }),
      counts("Series of a label pair", "Pair", "Series", data.seriesCountByLabelValuePair, { of: "all series", total: head.numSeries, selectorOf: pairSelector }),
      counts("Values of a label", "Label", "Values", data.labelValueCountByLabelName, { of: "all pairs", total: head.numLabelPairs }),
      counts("Bytes of the values of a label", "Label", "Bytes", data.memoryInBytesByLabelName, { format: bytes })));
}

// counts is one list, each with its share of a total if there is one.
function counts(caption, title, what, rows, { of, total, selectorOf, format = count }) {
  const name = (r) => (selectorOf
    ? element("a", { href: `?${new URLSearchParams({ tab: "latest", filter: selectorOf(r.name) })}` }, r.name)
    : r.name);
  return table(caption, [
    { title, kind: "text", cell: name, value: (r) => r.name },
    { title: what, kind: "number", cell: (r) => format(r.value), value: (r) => r.value },
    ...(total ? [{ title: `Share of ${of}`, cell: (r) => share(r.value / total) }] : []),
  ], rows);
}

// share shows a part of 1.
function share(part) {
  const text = `${(100 * part).toLocaleString("en", { maximumSignificantDigits: 3 })}%`;
  return element("div", { class: "share" }, element("meter", { min: 0, max: 1, value: part, "aria-hidden": true }), text);
}

function metricSelector(name) {
  return `{__name__=${JSON.stringify(name)}}`;
}

// pairSelector takes name=value, where the name cannot hold a = in practice.
function pairSelector(pair) {
  const at = pair.indexOf("=");
  return `{${JSON.stringify(pair.slice(0, at))}=${JSON.stringify(pair.slice(at + 1))}}`;
}
