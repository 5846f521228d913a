// The expression box: an instant query as a table, or a range as a graph.

import { ask, range } from "./api.js";
import { element, message, table } from "./dom.js";
import { count, sample, series, time, utc } from "./format.js";
import { graph } from "./graph.js";
import { newest } from "./newest.js";

// steps is how many points a graph has across, about.
const steps = 250;

export async function show(state, result, signal, navigate) {
  const expr = state.expr.trim();
  if (expr === "") {
    result.replaceChildren(element("p", { class: "hint" },
      "The adapter stores its own metrics too: try ", example("adapter_build_info", "table"), " or ",
      example('rate(adapter_write_samples_total[5m])', "graph"), "."));
    return;
  }
  const started = performance.now();
  const { start, end } = range(state);
  const resolution = state.res ? { max_source_resolution: state.res } : {};
  const answer = state.view === "graph"
    ? await askRange({ query: expr, limit: state.lines, ...resolution }, stepsOf(start, end), end, signal)
    : await ask("query", { query: expr, time: end, ...resolution }, { signal, post: true });
  const took = performance.now() - started;
  const { resultType, result: found } = answer.data;
  const shown = state.view === "graph"
    ? graph(found, { start, end }, (from, to) => navigate(zoom(from, to)))
    : instant(resultType, found);
  result.replaceChildren(...notes(answer), facts(answer, took), more(answer, navigate), ...shown.nodes);
  shown.draw?.(signal);
  if (resultType !== "scalar" && resultType !== "string" && found.length === 0) {
    result.append(await newest(expr, signal, navigate));
  }
}

function example(expr, view) {
  return element("a", { href: `?${new URLSearchParams({ tab: "query", expr, view })}` }, element("code", {}, expr));
}

// stepsOf returns the times of a graph of a range, in seconds. Long steps, and their times, are of whole hours or of whole 5 minutes, as
// rollups are, so that these can answer. Steps are counted from the last one back, which is the end, or less than a bucket before it.
function stepsOf(start, end) {
  const about = Math.max(1, Math.ceil((end - start) / steps));
  const bucket = [3600, 300].find((size) => about >= size);
  const step = bucket ? Math.round(about / bucket) * bucket : about;
  const last = bucket ? Math.floor(end / bucket) * bucket : end;
  return { start: last - Math.floor((last - start) / step) * step, end: last, step };
}

// askRange asks for the steps, and for a point at the end if it is behind the last one.
async function askRange(query, steps, end, signal) {
  const askAt = (times) => ask("query_range", { ...query, ...times }, { signal, post: true });
  if (steps.end === end) {
    return askAt(steps);
  }
  const [answer, newest] = await Promise.all([askAt(steps), askAt({ start: end, end, step: steps.step })]);
  append(answer.data.result, newest.data.result, Number(query.limit));
  answer.series = Math.max(answer.series, newest.series);
  for (const kind of ["warnings", "infos"]) {
    answer[kind] = [...new Set([...(answer[kind] ?? []), ...(newest[kind] ?? [])])];
  }
  return answer;
}

// append adds points to the series that they are of, or as series of their own up to a limit.
function append(found, newest, limit) {
  const known = new Map(found.map((s) => [series(s.metric), s]));
  for (const s of newest) {
    const before = known.get(series(s.metric));
    if (!before) {
      found.push(...(found.length < limit ? [s] : []));
      continue;
    }
    for (const kind of ["values", "histograms"].filter((kind) => s[kind])) {
      before[kind] = [...(before[kind] ?? []), ...s[kind]];
    }
  }
}

// zoom returns the state that shows the time between two in seconds.
function zoom(from, to) {
  return { end: utc(Math.ceil(to)), range: String(Math.max(1, Math.ceil(to) - Math.floor(from))) };
}

function notes(answer) {
  const cut = "results truncated due to limit"; // the facts say how
  return [...(answer.warnings ?? []), ...(answer.infos ?? [])].filter((text) => text !== cut).map((text) => message("warning", text));
}

function facts({ data: { result: found }, series: all }, took) {
  const shown = all > found.length ? `${count(found.length)} of ${count(all)} series shown, ` : `${count(found.length)} series, `;
  const isList = Array.isArray(found) && typeof found[0] === "object";
  return element("p", { class: "facts" }, `${isList ? shown : ""}${count(took)} ms`);
}

// more is a button that shows more lines, if there are more.
function more({ data: { result: found }, series: all }, navigate) {
  const { options, selectedIndex } = document.querySelector("#query select[name=lines]");
  const next = options[selectedIndex + 1];
  return all > found.length && next
    ? element("p", {}, element("button", { type: "button", onclick: () => navigate({ lines: next.value }) }, `Show ${next.text}`)) : "";
}

// instant shows the result of an instant query.
function instant(type, found) {
  if (type === "scalar" || type === "string") {
    return { nodes: [table(undefined, [
      { title: "Value", kind: "text", cell: ([, value]) => value },
      { title: "Time", cell: ([t]) => time(t) },
    ], [found])] };
  }
  if (found.length === 0) {
    return { nodes: [element("p", {}, "No series has a value at this time.")] };
  }
  if (type === "matrix") {
    return { nodes: [table(undefined, [
      { title: "Series", kind: "text", cell: (s) => series(s.metric), value: (s) => series(s.metric) },
      { title: "Samples", kind: "text", cell: samples },
    ], found)] };
  }
  return { nodes: [table(undefined, [
    { title: "Series", kind: "text", cell: (s) => series(s.metric), value: (s) => series(s.metric) },
    { title: "Value", kind: "number", cell: (s) => buckets(sample(s)), value: (s) => sample(s).number },
  ], found)] };
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
