// The panels of a board: graphs, single values and tables.

import { notes } from "../common/api.js";
import { element, message, tiles } from "../common/dom.js";
import { count, sample, series } from "../common/format.js";
import { drawingOf } from "../query/graphview.js";
import { askInstant, askRange, stepsOf } from "../query/requests.js";
import { letter } from "../query/lines.js";
import { newerResults } from "../query/resulttable.js";
import { treeOf } from "../query/syntaxtrees.js";
import { unitOf } from "../query/unitinference.js";
import { unit } from "../query/units.js";

// mostLines and mostValues are how many series a graph and a panel of values show, and height is that of a graph, in pixels.
const mostLines = 60, mostValues = 12, height = 240;

// panelOf returns the body of a panel, show(exprs, times), which asks for expressions and shows what they have, and busy(), whether a point is being read. onZoom(from, to) and onZoomOut() are those of a graph.
export function panelOf(panel, signal, { onZoom, onZoomOut }) {
  const body = element("div", { class: "panel-body" });
  let drawing, table;
  const showGraph = async (exprs, { start, end }) => {
    const steps = stepsOf(start, end, "");
    const answers = await Promise.all(exprs.map((expr) => askRange({ query: expr, limit: mostLines }, steps, end, signal)));
    const results = answers.map(({ data, series: all, isLeast }, i) => ({ expr: exprs[i], letter: letter(i), result: data.result, series: all, isLeast }));
    const times = { start, end, step: steps.step };
    if (drawing?.update?.(results, times)) {
      return;
    }
    drawing = await drawingOf({ mode: panel.mode ?? "", unit: panel.unit ?? "", heatmap: "", compare: "" }, results, times, { shown: { only: [], off: [] }, onShown: () => {}, onZoom, onZoomOut, height }, signal);
    const cut = answers.find(({ series: all, data }) => all > data.result.length);
    const { nodes, legend } = drawing;
    body.replaceChildren(...said(answers), ...(cut ? [message("note", `The first ${count(mostLines)} of ${count(cut.series)} series are shown.`)] : []), ...nodes.filter((node) => node !== legend),
      ...(legend ? [element("details", {}, element("summary", {}, "Series"), legend)] : []));
    drawing.draw?.(signal);
  };
  const showValues = async (exprs, { end }) => {
    const answers = await Promise.all(exprs.map((expr) => askInstant({ query: expr }, end, signal)));
    if (panel.kind === "table") {
      table = answers.map(({ data }, i) => newerResults(table?.[i], data, { at: end, asColumns: true }));
      body.replaceChildren(...said(answers), ...table);
      return;
    }
    if (answers.some(({ data }) => data.resultType === "matrix")) {
      throw new Error("A range vector has no single value. Show it as a table.");
    }
    const { text } = unit(panel.unit || unitOf(await treeOf(exprs[0], signal)).values);
    const values = answers.flatMap(({ data: { resultType, result } }) => (resultType === "vector" ? result : [{ metric: {}, value: result }]));
    body.replaceChildren(...said(answers), values.length === 0 ? element("p", { class: "facts" }, "No value") : tiles(...values.slice(0, mostValues).map((s) => [nameOf(s.metric), valueOf(s, text)])),
      ...(values.length > mostValues ? [message("note", `The first ${count(mostValues)} of ${count(values.length)} values are shown.`)] : []));
  };
  const show = async (exprs, times) => {
    try {
      await (panel.kind === "graph" ? showGraph : showValues)(exprs, times);
    } catch (error) {
      if (signal.aborted) {
        return;
      }
      drawing = undefined;
      body.replaceChildren(message("error", error.message));
    }
  };
  return { body, show, busy: () => drawing?.busy?.() ?? false };
}

function said(answers) {
  return [...new Set(answers.flatMap(notes))].map((text) => message("warning", text));
}

function nameOf(metric) {
  const { __name__: name, ...rest } = metric;
  return Object.keys(rest).length > 0 ? series(rest) : name ?? "";
}

function valueOf(s, text) {
  const { number, text: written, histogram } = sample(s);
  return histogram ? written : text(number);
}
