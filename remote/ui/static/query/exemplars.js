// Exemplars in a graph: points that lead to traces, and a list of them.

import { ask } from "../common/api.js";
import { element, located, message } from "../common/dom.js";
import { count, number, series, time, utc } from "../common/format.js";
import { table } from "../common/table.js";
import { layerOf } from "./layer.js";
import { namesIn } from "./syntaxtrees.js";

// most is how many exemplars of an expression are asked for.
const most = 500;

// askExemplars returns the exemplars of the series that expressions read, each with a letter, from start to end in seconds: points; how many there are in all; and problems.
export async function askExemplars(queries, { start, end }, signal) {
  const answers = await Promise.all(queries.map(({ expr, letter }) => ask("query_exemplars", { query: expr, start, end, limit: most }, { signal, post: true }).then(
    ({ data, exemplars }) => ({ letter, all: exemplars, points: data.flatMap(({ seriesLabels, exemplars }) => exemplars.map(({ labels, value, timestamp }) => ({ letter, metric: seriesLabels, labels, v: number(value), t: timestamp }))) }),
    (error) => ({ letter, error }))));
  signal.throwIfAborted();
  const found = answers.filter(({ error }) => !error);
  return {
    points: found.flatMap(({ points }) => points).sort((a, b) => a.t - b.t),
    all: found.reduce((sum, { all }) => sum + all, 0),
    problems: answers.filter(({ error }) => error).map(({ letter, error }) => `${queries.length > 1 ? `${letter} ` : ""}Exemplars: ${located(error.message)}`),
  };
}

// exemplarsOf returns the layer of exemplars and the node that lists them, and fill(found), which takes what askExemplars returns. unit is that of their values. Those of
// expressions whose values are not such, by isFit(letter), are at the lower edge of a graph, but not of a heatmap.
export function exemplarsOf(unit, isFit) {
  const what = ({ v, labels }) => `${unit.text(v)}, ${series(labels)}`;
  const layer = layerOf("exemplar", {
    value: ({ letter, v }, isObserved) => (isObserved || isFit(letter) ? v : NaN),
    title: (point) => `Exemplar: ${what(point)}`,
    tell: (point) => [
      element("div", { class: "graph-tip-time" }, time(point.t)), element("strong", {}, unit.text(point.v)), element("div", { class: "graph-tip-name" }, series(point.metric)),
      labelList(point.labels), ...traceLinks(point.labels),
    ],
  });
  const node = element("div", { class: "overlay-list" });
  const fill = ({ points, all, problems }) => {
    layer.fill(points);
    const has = traceTemplate() !== "";
    node.replaceChildren(...problems.map((text) => message("warning", text)), points.length === 0 ? element("p", { class: "facts" }, "No series of this graph has an exemplar in this range.")
      : element("details", {}, element("summary", {}, `${count(points.length)} exemplars${all > points.length ? ` of ${count(all)}, the greatest of each part of the range` : ""}`), table(undefined, [
        { title: "Time", kind: "text", cell: ({ t }) => time(t), value: ({ t }) => t, text: ({ t }) => utc(t) },
        { title: "Value", kind: "number", value: ({ v }) => v, cell: ({ v }) => unit.text(v) },
        { title: "Exemplar", kind: "text", cell: ({ labels }) => series(labels), value: ({ labels }) => series(labels) },
        { title: "Series", kind: "text", cell: ({ metric }) => series(metric), value: ({ metric }) => series(metric) },
        ...(has ? [{ title: "Trace", kind: "text", text: false, cell: ({ labels }) => element("span", {}, ...traceLinks(labels)) }] : []),
      ], points)));
  };
  return { layer, node, fill };
}

// isObserved says whether the values of an expression are such as its histograms observe: quantiles and averages of these.
export function isObserved(node) {
  switch (node?.type) {
    case "call":
      return ["histogram_quantile", "histogram_avg", "histogram_quantiles"].includes(node.func.name) || node.args.some(isObserved);
    case "aggregation":
    case "parenExpr":
    case "subquery":
      return isObserved(node.expr);
    case "binaryExpr":
      return node.op === "/" && [[node.lhs, "_sum"], [node.rhs, "_count"]].every(([side, suffix]) => namesIn(side).length > 0 && namesIn(side).every((name) => name.endsWith(suffix)));
    default:
      return false;
  }
}

function labelList(labels) {
  return element("dl", { class: "layer-labels" }, ...Object.entries(labels).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

// traceTemplate returns --web.trace-url: the URL of a trace, with names of labels in braces.
function traceTemplate() {
  return document.querySelector("meta[name=trace-url]")?.content ?? "";
}

// traceLinks returns the link to the trace of an exemplar, if it has all labels of the template.
function traceLinks(labels) {
  const template = traceTemplate();
  const names = [...template.matchAll(/\{([^{}]+)\}/g)].map(([, name]) => name);
  if (template === "" || names.some((name) => !labels[name])) {
    return [];
  }
  const href = template.replace(/\{([^{}]+)\}/g, (_, name) => encodeURIComponent(labels[name]));
  return [element("a", { href, target: "_blank", rel: "noopener noreferrer" }, "Open the trace")];
}
