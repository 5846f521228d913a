// What the page shows before there is a query: what is stored, what comes in, and queries that show something of it.

import { ask } from "../common/api.js";
import { element, orMessage, tiles } from "../common/dom.js";
import { count, number, series, time } from "../common/format.js";
import { byOf, expressionsOf, kindOf } from "../common/metrickinds.js";
import { bytes, roughDuration } from "../common/quantities.js";
import { labelName, link } from "../common/selectors.js";
import { configuration } from "../common/senderconfig.js";
import { sparkline } from "../common/sparkline.js";
import { table } from "../common/table.js";
import { askInstant } from "./requests.js";

// How much is looked at: names of metrics, names that are tried as an example of a kind, and series of one of them.
const mostNames = 2000, mostTried = 4, mostSeries = 500;

// stored counts what is stored, of writers and of the adapter's own metrics.
const stored = 'adapter_engine_appended_samples_total{result="success"}';

// startPage returns the nodes of it.
export async function startPage(signal) {
  const names = ask("label/__name__/values", { limit: mostNames, start: Math.floor(Date.now() / 1000) - 3600 }, { signal }).then(({ data }) => data);
  const parts = [[senders(names), examples(names, signal)], [arrivals(signal), about(signal)]];
  const columns = await Promise.all(parts.map((some) => Promise.all(some.map((part) => orMessage(part, signal)))));
  return [element("div", { class: "start" }, ...columns.map((nodes) => element("div", {}, ...nodes.flat())))];
}

// about tells what is stored.
async function about(signal) {
  const [{ data: store }, { data: status }] = await Promise.all([ask("status/store", {}, { signal }), ask("status/adapter", {}, { signal })]);
  const since = (new Date(status.now) - new Date(status.started)) / 1000;
  const sizes = ["adapter_pebble_disk_bytes", "adapter_buffer_log_size_bytes"].filter((name) => name in status.metrics).map((name) => status.metrics[name]);
  return [
    element("h2", {}, "Storage"),
    tiles(
      ["Active series", `${store.seriesExact ? "" : "more than "}${count(store.series)}`],
      ["Oldest sample not before", store.oldest ? time(store.oldest.minTime / 1000) : "none yet"],
      store.newestSample ? [store.newestSampleExact ? "Newest sample" : "Newest sample of 1,000 series", time(store.newestSample / 1000)]
        : ["Newest sample not after", store.newest ? time(store.newest.maxTime / 1000) : "none yet"],
      [`Samples stored since start, ${roughDuration(since)} ago`, count(status.metrics[stored] ?? 0)],
      ...(sizes.length === 0 ? [] : [["Database and log on disk", bytes(sizes.reduce((sum, size) => sum + size))]])),
    element("p", { class: "facts" }, `Series are indexed by periods of 6.2 days. The current period began ${time(store.minTime / 1000)}. `,
      ...(store.seriesExact ? [] : ["The number of series is a lower bound: ", element("a", { href: link("cardinality", {}) }, "count all"), ". "])),
    ...(store.resolutions.length > 0 ? [table("Retention", [
      { title: "Resolution", kind: "text", cell: (r) => r.name },
      { title: "Data", cell: (r) => (r.name === "raw" ? "samples" : "rollups") },
      { title: "Kept for", cell: (r) => (r.maxAgeSeconds ? roughDuration(r.maxAgeSeconds) : "forever") },
      { title: "Shown from", kind: "time", cell: (r) => (r.from > 0 ? time(r.from / 1000) : "the oldest sample") },
    ], store.resolutions)] : []),
  ];
}

// arrivals draws how many samples came in, as the adapters on this store count them.
async function arrivals(signal) {
  const end = Math.floor(Date.now() / 1000), step = 60;
  const { data } = await ask("query_range", { query: `sum(rate(${stored}[2m]))`, start: end - 3600, end, step }, { signal, post: true });
  const found = new Map(data.result[0]?.values.map(([t, v]) => [t, number(v)]));
  if (found.size === 0) {
    return [];
  }
  const times = [...Array(61).keys()].map((i) => end - 3600 + i * step);
  return [element("h2", {}, "Ingestion"),
    sparkline({ times, values: times.map((t) => found.get(t) ?? null), unit: "/s", label: "Samples stored in the last hour" })];
}

// telling is a part of names that say something to most readers.
const telling = /request|cpu|memory|bytes|load|queue/;

// isOwn says whether a metric may be one that each adapter has of itself.
function isOwn(name) {
  return /^(adapter|go|process|promhttp|prometheus_engine)_/.test(name);
}

// examples returns queries that have an answer now, each of another kind of metric.
async function examples(named, signal) {
  const names = await named;
  const parts = /_(total|bucket|sum|count|created|info)$/;
  const plain = (name) => !parts.test(name);
  const kinds = [
    ["Rate of a counter", ["counter"], names.filter((name) => name.endsWith("_total"))],
    ["Value of a gauge", ["gauge", "summary"], names.filter(plain)],
    ["90th percentile of a histogram", ["buckets", "native"], [...names.filter((name) => name.endsWith("_bucket")), ...names.filter((name) => plain(name) && /seconds|bytes|duration|size|latency/.test(name))]],
  ];
  const found = (await Promise.all(kinds.map(async ([what, wanted, all]) => {
    const fit = [...all.filter((name) => telling.test(name)), ...all.filter((name) => !telling.test(name))];
    const tried = [...fit.filter((name) => !isOwn(name)).slice(0, mostTried), ...fit.filter((name) => name.startsWith("adapter_")).slice(0, mostTried)];
    for (const name of tried) {
      const expr = await example(name, wanted, signal);
      if (expr) {
        return { what, expr };
      }
    }
  }))).filter(Boolean);
  if (found.length === 0) {
    return names.length === 0 ? [] : [element("p", {}, element("a", { href: link("explore", {}) }, "Explore the metrics"))];
  }
  return [element("h2", {}, "Example queries"), element("ul", { class: "examples" }, ...found.map(({ what, expr }) => element("li", {},
    element("span", { class: "facts" }, what), element("a", { href: link("query", { expr, view: "graph" }) }, element("code", {}, expr))))),
  element("p", {}, element("a", { href: link("explore", {}) }, "Explore all metrics"))];
}

// example returns an expression that has a value now, of a metric if it is of one of the wanted kinds, or undefined.
async function example(name, wanted, signal) {
  const selector = series({ __name__: name });
  const now = Math.floor(Date.now() / 1000);
  const { data: some } = await ask("series", { "match[]": selector, limit: mostSeries, start: now - 3600 }, { signal });
  if (some.length === 0 || some.length === mostSeries) {
    return undefined; // too many to be tried
  }
  const values = {};
  for (const [label, value] of some.flatMap(Object.entries)) {
    (values[label] ??= new Set()).add(value);
  }
  const labels = Object.entries(values).map(([label, of]) => ({ name: label, values: of.size }));
  const answer = async (kind) => {
    const by = ["buckets", "native"].includes(kind) ? "" : byOf(labels);
    const made = expressionsOf(kind, { selector, series: some.length, by: by && labelName(by), fold: "", window: "5m" });
    const { expr } = made.find(({ quantile }) => quantile === "0.9") ?? made[0];
    const { data: { result } } = await askInstant({ query: expr }, now, signal);
    return { kind, expr, hasValue: result.some(({ value }) => value && value[1] !== "NaN"), isNative: result.some(({ histogram }) => histogram) };
  };
  let found = await answer(kindOf({ name }, Object.keys(values)));
  if (found.isNative && wanted.includes("native")) {
    found = await answer("native");
  }
  return found.hasValue && wanted.includes(found.kind) ? found.expr : undefined;
}

// senders tells how samples come here, where there are none but those of adapters.
async function senders(named) {
  const names = await named;
  if (names.some((name) => !isOwn(name))) {
    return [];
  }
  return [element("h2", {}, "Send samples"),
    element("p", {}, names.length === 0 ? "Nothing is stored yet. " : "Only the adapters' own metrics are stored. ", "Add these lines to prometheus.yml to send samples and read them back:"),
    element("pre", {}, configuration()),
    element("p", {}, "The OpenTelemetry endpoint is ", element("code", {}, `${new URL("api/v1/otlp/v1/metrics", location.href).href}`), ".")];
}
