// The result of an instant query as a table.

import { element, table } from "../common/dom.js";
import { sample, series, time } from "../common/format.js";

// results returns a node that shows the result of an instant query.
export function results({ resultType, result }) {
  if (resultType === "scalar" || resultType === "string") {
    return table(undefined, [
      { title: "Value", kind: "text", cell: ([, value]) => value },
      { title: "Time", cell: ([t]) => time(t) },
    ], [result]);
  }
  if (result.length === 0) {
    return element("p", {}, "No series has a value at this time.");
  }
  if (resultType === "matrix") {
    return table(undefined, [
      { title: "Series", kind: "text", cell: (s) => series(s.metric), value: (s) => series(s.metric) },
      { title: "Samples", kind: "text", cell: samples },
    ], result);
  }
  return table(undefined, [
    { title: "Series", kind: "text", cell: (s) => series(s.metric), value: (s) => series(s.metric) },
    { title: "Value", kind: "number", cell: (s) => buckets(sample(s)), value: (s) => sample(s).number },
  ], result);
}

// samples lists those of a range vector, a line each.
function samples(s) {
  const values = (s.values ?? []).map((value) => sample({ value }));
  const histograms = (s.histograms ?? []).map((histogram) => sample({ histogram }));
  const lines = [...values, ...histograms].sort((a, b) => a.t - b.t).map(({ t, text }) => `${text}  @ ${time(t)}`);
  return element("pre", {}, lines.join("\n"));
}

// buckets shows a value, or a histogram with its buckets folded away.
function buckets({ text, histogram }) {
  if (!histogram?.buckets?.length) {
    return text;
  }
  const bounds = [["(", "]"], ["[", ")"], ["(", ")"], ["[", "]"]];
  const lines = histogram.buckets.map(([kind, lower, upper, n]) => `${bounds[kind][0]}${lower}, ${upper}${bounds[kind][1]}  ${n}`);
  return element("details", {}, element("summary", {}, text), element("pre", {}, lines.join("\n")));
}
