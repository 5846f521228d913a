// What a metric is, and the expressions that show it.

// quantiles are those that are shown of a histogram.
const quantiles = ["0.5", "0.9", "0.99"];

// fewLines is how many series are drawn as they are.
const fewLines = 20;

// kindOf returns what a metric is, from its name, its type in the metadata if it has one, and its labels if they are known: counter, gauge, buckets
// of a classic histogram, native histogram, summary, or info.
export function kindOf({ name, type }, labels = []) {
  if (name.endsWith("_bucket") && (labels.length === 0 || labels.includes("le"))) {
    return "buckets";
  }
  if (type === "info" || name.endsWith("_info")) {
    return "info";
  }
  if (labels.includes("quantile")) {
    return "summary";
  }
  const isPart = /_g?(sum|count)$/.test(name);
  if (type === "histogram" || type === "gaugehistogram") {
    return isPart ? "counter" : "native";
  }
  return type === "counter" || !type && name.endsWith("_total") || isPart && type !== "gauge" ? "counter" : "gauge";
}

// preferred are the labels that most say something, in order.
const preferred = ["job", "service", "instance", "code", "status", "status_code", "method", "handler", "route", "namespace", "mode", "device", "result", "state", "type", "cpu"];

// byOf returns the label that splits a metric into some lines: of labels with their numbers of values one with 2 to 20, or "".
export function byOf(labels) {
  const rank = (name) => (preferred.includes(name) ? preferred.indexOf(name) : preferred.length);
  const fit = labels.filter(({ name, values }) => !["__name__", "le", "quantile"].includes(name) && values >= 2 && values <= fewLines);
  fit.sort((a, b) => rank(a.name) - rank(b.name) || a.values - b.values);
  return fit[0]?.name ?? "";
}

// expressionsOf returns the expressions that show a metric of a kind, each with the quantile that it is of if it is of one. The selector is that of its
// series, of which there are so many; by is a label, as PromQL writes it, or ""; fold is how series become one, "" for what fits best, "each" for not at
// all; and a rate is that of a window such as 5m.
export function expressionsOf(kind, { selector, series, by, fold, window }) {
  const folded = (how, expr, also = []) => {
    const labels = [...also, ...(by ? [by] : [])];
    return `${how}${labels.length > 0 ? ` by (${labels.join(", ")}) ` : ""}(${expr})`;
  };
  const rate = `rate(${selector}[${window}])`;
  switch (kind) {
    case "counter":
      return [{ expr: fold === "each" || fold === "" && series === 1 ? rate : folded(fold || "sum", rate) }];
    case "buckets":
      return quantiles.map((q) => ({ quantile: q, expr: `histogram_quantile(${q}, ${folded("sum", rate, ["le"])})` }));
    case "native":
      return quantiles.map((q) => ({ quantile: q, expr: `histogram_quantile(${q}, ${folded("sum", rate)})` }));
    case "summary":
      return [{ expr: fold === "each" || fold === "" && series <= fewLines ? selector : folded(fold || "avg", selector, by === "quantile" ? [] : ["quantile"]) }];
    case "info":
      return [{ expr: selector }];
  }
  return [{ expr: fold === "each" || fold === "" && series <= fewLines ? selector : folded(fold || "avg", selector) }];
}

// heatmapOf returns the expression of a heatmap of a histogram.
export function heatmapOf(kind, selector, window) {
  return kind === "buckets" ? `sum by (le) (rate(${selector}[${window}]))` : `sum(rate(${selector}[${window}]))`;
}

// windowOf returns the window of a rate in a graph of so many seconds: five minutes, or the time between two of its points, which is of whole hours or
// of whole five minutes where it is long.
export function windowOf(range) {
  const step = range / 250;
  return step > 3300 ? `${Math.ceil(step / 3600)}h` : `${Math.max(1, Math.ceil(step / 300)) * 5}m`;
}
