// The result of an instant query as a table.

import { element } from "../common/dom.js";
import { capital, count, sample, series, time, utc } from "../common/format.js";
import { roughDuration } from "../common/quantities.js";
import { chosen, update } from "../common/rows.js";
import { table } from "../common/table.js";
import { change, changeText } from "./comparison.js";
import { bars, bucketsOf, histogramText } from "./histogram.js";

// results returns a node that shows the result of an instant query, asked for at a time in seconds. With asColumns
// there is a column for each label; onColumns(whether) is called when that is to change. then is what the result is compared with: its words and its result.
export function results(data, options = {}) {
  const { columns, rows, more } = tableOf(data, options);
  return rows.length === 0 ? element("p", {}, "No series has a value at this time.") : table(undefined, columns, rows, undefined, { ...more, chosen: options.chosen });
}

// newerResults shows a newer result in such a node, and returns it, or another one that has what was chosen in it.
export function newerResults(node, data, options) {
  const { columns, rows } = tableOf(data, options);
  return rows.length > 0 && update(node, columns, rows) ? node : results(data, { ...options, chosen: chosen(node) });
}

function tableOf({ resultType, result }, { at, asColumns = false, onColumns, then }) {
  if (resultType === "scalar" || resultType === "string") {
    return { rows: [result], columns: [
      { title: "Value", kind: resultType === "string" ? "text whole" : "text", cell: ([, value]) => value },
      { title: "Time", kind: "time", cell: ([t]) => time(t), text: ([t]) => utc(t) },
    ] };
  }
  const name = { title: "Series", kind: "text", cell: (s) => series(s.metric), value: (s) => series(s.metric) };
  const names = asColumns ? labelColumns(result) : [name];
  const columns = resultType === "matrix"
    ? [{ title: "Samples", kind: "text", cell: samples, value: (s) => samplesOf(s).length }]
    : vectorColumns(result, at);
  const more = resultType === "vector" && then?.result ? thenColumns(then) : [];
  const lines = {
    titles: [...names.map(({ title }) => title), "Time", "Value", ...more.map(({ title }) => title)],
    of: (s) => samplesOf(s).map(({ t, text, histogram }) =>
      [...names.map(({ value }) => value(s)), utc(t), histogram ? histogramText(histogram) : text, ...more.map((column) => column.text(s))]),
  };
  return { rows: result, columns: [...names, ...columns, ...more], more: { find: name, lines, controls: onColumns ? [choice(asColumns, onColumns)] : [] } };
}

// columns returns the options of results that a state says, and that change it.
export function columns(state, at, navigate) {
  const onColumns = (on) => navigate({ columns: on ? "1" : "" }).then(() => document.querySelector("#query .choice input")?.focus());
  return { at, asColumns: state.columns === "1", onColumns };
}

// choice is the box that makes labels columns.
function choice(asColumns, onColumns) {
  return element("label", { class: "choice" },
    element("input", { type: "checkbox", checked: asColumns, onchange: ({ target }) => onColumns(target.checked) }), " Labels as columns");
}

// labelColumns returns a column for each label that a series has.
function labelColumns(result) {
  const labels = [...new Set(result.flatMap((s) => Object.keys(s.metric)))].sort();
  return labels.map((label) => {
    const value = (s) => s.metric[label] ?? "";
    return { title: label === "__name__" ? "Metric" : label, kind: "text label", cell: value, value };
  });
}

// vectorColumns returns the columns of the values of an instant vector, with their times where these are not what was asked for.
function vectorColumns(result, at) {
  const isOther = (s) => Math.abs(sample(s).t - at) >= 0.001; // the API has milliseconds
  const value = { title: "Value", kind: "number", cell: (s) => shownValue(sample(s)), value: (s) => sample(s).number };
  const t = { title: "Time", kind: "number", value: (s) => sample(s).t,
    cell: (s) => (isOther(s) ? element("span", { title: time(sample(s).t) }, ago(at - sample(s).t)) : "query time") };
  return at !== undefined && result.some(isOther) ? [value, t] : [value];
}

// thenColumns returns those of the values that a vector is compared with, and of the difference.
function thenColumns({ result, words }) {
  const before = new Map(result.map((s) => [series(s.metric), sample(s)]));
  const of = (s) => before.get(series(s.metric));
  return [
    { title: capital(words), kind: "number", cell: (s) => (of(s) ? shownValue(of(s)) : ""), value: (s) => of(s)?.number ?? NaN, text: (s) => of(s)?.text ?? "" },
    { title: "Change", kind: "number", cell: (s) => changeText(sample(s).number, of(s)?.number), value: (s) => change(sample(s).number, of(s)?.number), text: (s) => changeText(sample(s).number, of(s)?.number) },
  ];
}

function ago(seconds) {
  return seconds < 0 ? `${roughDuration(-seconds)} after` : `${roughDuration(seconds)} before`;
}

// samplesOf returns the samples of a series of any result, in their order.
function samplesOf(s) {
  if (s.value || s.histogram) {
    return [sample(s)];
  }
  const values = (s.values ?? []).map((value) => sample({ value }));
  const histograms = (s.histograms ?? []).map((histogram) => sample({ histogram }));
  return [...values, ...histograms].sort((a, b) => a.t - b.t);
}

// fewSamples is how many samples of a series are shown at once, and mostSamples how many at all.
const fewSamples = 12;
const mostSamples = 1000;

// samples lists those of a range vector. Many are folded away.
function samples(s) {
  const all = samplesOf(s);
  if (all.length <= fewSamples) {
    return list(all);
  }
  const days = [time(all[0].t), time(all.at(-1).t)];
  const folded = element("details", { ontoggle: () => folded.open && !folded.querySelector("ol") && folded.append(list(all)) },
    element("summary", {}, `${count(all.length)} samples from ${days[0]} to ${days[1]}, the last is ${all.at(-1).text}`));
  return folded;
}

function list(all) {
  const items = all.slice(-mostSamples).map(({ t, text }) => element("li", {}, element("time", { datetime: utc(t) }, time(t)), element("span", {}, text)));
  const before = all.length - items.length;
  return element("ol", { class: "samples", tabindex: 0, "aria-label": "Samples" }, before > 0 ? element("li", {}, `${count(before)} earlier samples are in the CSV.`) : undefined, ...items);
}

// shownValue shows a value, or a histogram as bars with its buckets folded away.
function shownValue({ text, histogram }) {
  if (!histogram?.buckets?.length) {
    return text;
  }
  return element("details", {}, element("summary", {}, text, " ", bars(histogram)), bucketsOf(histogram));
}
