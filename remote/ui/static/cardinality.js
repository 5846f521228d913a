// What makes so many series, from the index.

import { ask } from "./api.js";
import { element, table, tiles } from "./dom.js";
import { bytes, count, time } from "./format.js";

export async function show(state, result, signal) {
  const { data } = await ask("status/tsdb", { limit: state.top }, { signal });
  const head = data.headStats;
  result.replaceChildren(
    tiles(["Series", count(head.numSeries)], ["Label pairs", count(head.numLabelPairs)],
      ["Index period from", time(head.minTime / 1000)], ["to", time(head.maxTime / 1000)]),
    element("div", { class: "tables" },
      counts("Series of a metric", "Metric", "Series", data.seriesCountByMetricName, metricSelector),
      counts("Series of a label pair", "Pair", "Series", data.seriesCountByLabelValuePair, pairSelector),
      counts("Values of a label", "Label", "Values", data.labelValueCountByLabelName),
      counts("Bytes of the values of a label", "Label", "Bytes", data.memoryInBytesByLabelName, undefined, bytes)));
}

// counts is one list, each with its share of the largest.
function counts(caption, title, what, rows, selectorOf, format = count) {
  const largest = Math.max(1, ...rows.map((r) => r.value));
  const name = (r) => (selectorOf
    ? element("a", { href: `?${new URLSearchParams({ tab: "latest", filter: selectorOf(r.name) })}` }, r.name)
    : r.name);
  return table(caption, [
    { title, kind: "text", cell: name, value: (r) => r.name },
    { title: what, kind: "number", cell: (r) => format(r.value), value: (r) => r.value },
    { title: "Share", cell: (r) => element("meter", { min: 0, max: largest, value: r.value }, format(r.value)) },
  ], rows);
}

function metricSelector(name) {
  return `{__name__=${JSON.stringify(name)}}`;
}

// pairSelector takes name=value, where the name cannot hold a = in practice.
function pairSelector(pair) {
  const at = pair.indexOf("=");
  return `{${JSON.stringify(pair.slice(0, at))}=${JSON.stringify(pair.slice(at + 1))}}`;
}
