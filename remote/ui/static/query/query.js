// The tab Query: expressions at a time as tables, or over a range as one graph.

import { range, Unreachable } from "../common/api.js";
import { element, message } from "../common/dom.js";
import { count, utc } from "../common/format.js";
import { askInstant, askRange } from "./ask.js";
import { shown } from "./expressions.js";
import { graph } from "./graph.js";
import { newest } from "./newest.js";
import { columns, results } from "./results.js";
import { sentence } from "./sentence.js";
import { start as startPage } from "./start.js";

export { fill, read } from "./expressions.js";

export async function show(state, result, signal, navigate) {
  if (state.expr.length === 0) {
    result.replaceChildren(...await startPage(signal));
    return;
  }
  const times = range(state);
  const isGraph = state.view === "graph";
  const asked = await Promise.all(shown(state).map((expr) => askOne(expr, state, times, signal)));
  const answers = asked.filter(({ error }) => !error);
  const nodes = [];
  let drawing;
  for (const one of asked) {
    const heading = asked.length > 1 && element("h2", {}, element("code", {}, one.expr));
    nodes.push(...(heading ? [heading] : []), ...about(one, navigate), ...(one.error || isGraph ? [] : [results(one.answer.data, columns(state, times.end, navigate))]));
  }
  if (isGraph && answers.length > 0) {
    drawing = graph(answers.flatMap(({ answer }) => answer.data.result), times, (from, to) => navigate(zoom(from, to)));
    nodes.push(...drawing.nodes);
  }
  result.replaceChildren(...nodes);
  drawing?.draw?.(signal);
  if (answers.length > 0 && answers.every(({ answer: { data } }) => Array.isArray(data.result) && data.result.length === 0)) {
    result.append(await newest(answers[0].expr, signal, navigate));
  }
  return sentence(answers, isGraph, times);
}

// askOne returns an expression with its answer and how long it took in milliseconds, or its error. Only where no
// server answers it throws.
async function askOne(expr, state, { start, end }, signal) {
  const began = performance.now();
  const query = { query: expr, ...(state.res && { max_source_resolution: state.res }) };
  try {
    const answer = state.view === "graph"
      ? await askRange({ ...query, limit: state.lines }, start, end, signal)
      : await askInstant(query, end, signal);
    return { expr, answer, took: performance.now() - began };
  } catch (error) {
    if (signal.aborted || error instanceof Unreachable) {
      throw error;
    }
    return { expr, error };
  }
}

// about returns what there is to say of an answer beside its result.
function about({ answer, error, took }, navigate) {
  return error ? [message("error", error.message)] : [...notes(answer), facts(answer, took), more(answer, navigate)];
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
