// The tab Query: expressions at a time as tables, or over a range as one graph.

import { announce } from "../common/announce.js";
import { notes, range, Unreachable } from "../common/api.js";
import { element, message } from "../common/dom.js";
import { copy } from "../common/export.js";
import { capital, count, utc } from "../common/format.js";
import { formatDuration } from "../common/quantities.js";
import { sentence } from "./announcement.js";
import { boardButton } from "./addtoboard.js";
import { comparison, gone, later } from "./comparison.js";
import * as expressions from "./expressions.js";
import { showGraph } from "./graphview.js";
import * as refreshing from "./refresh.js";
import { askInstant, askRange, shownOf, stepsOf } from "./requests.js";
import { startPage } from "./startpage.js";
import * as step from "./step.js";
import { words } from "./timeranges.js";
import { showTables } from "./tableview.js";
import * as visibleLines from "./visiblelines.js";
import { explainLink } from "../tabs/explain.js";

// fill writes the state into the form, as far as it is not that of its fields.
export function fill(form, state) {
  expressions.fill(form, state);
  step.fill(form);
  refreshing.fill(form, state);
  visibleLines.fill(state);
  form.querySelector(".fold").textContent = `${state.view === "graph" ? "Graph" : "Table"}, ${words(state)}`;
}

// read returns what fill writes.
export function read(form) {
  const typed = expressions.read(form);
  return { ...typed, ...visibleLines.read(typed.expr) };
}

export async function show(state, result, signal, navigate) {
  if (state.expr.length === 0) {
    result.replaceChildren(...await startPage(signal));
    return;
  }
  const queries = expressions.shown(state);
  if (queries.length === 0) {
    result.replaceChildren(element("p", { class: "hint" }, "All expressions are hidden."));
    return;
  }
  let asked, times;
  const askAll = async (of, isRefresh = false) => {
    const found = await Promise.all(queries.map((query) => askOne(query, state, of, signal)));
    if (isRefresh && found.every(({ error }) => error)) {
      throw found[0].error; // what is shown stays
    }
    [asked, times] = [found, of];
    expressions.ran(asked, isRefresh);
    return asked;
  };
  const isGraph = state.view === "graph";
  if (isGraph) {
    await showGraph(state, result, signal, navigate, askAll, (asked) => (asked.length === 1 ? about(asked[0], state, navigate)
      : asked.map((one) => element("div", { class: "answer" }, ...heading(one, asked), ...about(one, state, navigate)))));
  } else {
    await showTables(state, result, signal, navigate, askAll, (one, asked) => [...heading(one, asked), ...about(one, state, navigate)]);
  }
  return sentence(asked.filter(({ error }) => !error), isGraph, times)?.concat(refreshing.sentence(state));
}

function heading({ expr, letter }, asked) {
  return asked.length > 1 ? [element("h2", {}, `${letter} `, element("code", {}, expr))] : [];
}

// askOne returns an expression and its letter with its answer and how long it took in milliseconds, or its error. Only where no
// server answers it throws.
async function askOne({ expr, letter }, state, { start, end }, signal) {
  const began = performance.now();
  const query = { query: expr, ...(state.res && { max_source_resolution: state.res }) };
  try {
    const compared = comparison(state.compare);
    const steps = state.view === "graph" && stepsOf(start, end, state.step);
    const askBack = (seconds) => (steps ? askRange({ ...query, limit: state.lines }, { start: steps.start - seconds, end: steps.end - seconds, step: steps.step }, end - seconds, signal)
      : askInstant(query, end - seconds, signal));
    const before = compared && askBack(compared.seconds).then((answer) => ({ ...compared, answer, result: later(answer.data.result, compared.seconds) }), (error) => ({ ...compared, error }));
    const answer = await askBack(0);
    const then = await before;
    return { expr, letter, answer, then, took: performance.now() - began, step: steps && steps.step, end };
  } catch (error) {
    if (signal.aborted || error instanceof Unreachable) {
      throw error;
    }
    return { expr, letter, error };
  }
}

// about returns what there is to say of an answer beside its result.
function about({ expr, letter, answer, then, error, took, step, end }, state, navigate) {
  return error ? [message("error", error.message), ...narrower(expr, error, state, navigate)] : [...notes(answer).map((text) => message("warning", text)), ...aboutThen(answer, then), element("div", { class: "answer-facts" }, facts(answer, took, step), explainLink(state, expr), ...(state.view === "graph" ? [changedButton(letter, navigate)] : []), boardButton(state), linkButton(end)), more(expr, answer, state, navigate)];
}

// narrower offers less where a query has met a limit, which names its flag or is one of Prometheus'.
function narrower(expr, { message: said }, state, navigate) {
  if (!/: see --|exceeds a limit|too many samples/.test(said)) {
    return [];
  }
  const half = String(Math.max(1, Math.floor(state.range / 2)));
  const button = (text, changes) => element("button", { type: "button", onclick: () => navigate(changes) }, text);
  const isGraph = state.view === "graph" && !said.includes("too many series"); // of which a shorter graph has as many
  return [element("p", { class: "more" }, ...(isGraph ? [button(`Ask for the last ${formatDuration(half)}`, { range: half }), " ", button("Ask with a step twice as long", { step: formatDuration(2 * stepOf(state)) }), " "] : []),
    explainLink(state, expr), " shows what it reads.")];
}

// stepOf returns the step of the graph of a state, in seconds.
function stepOf(state) {
  const { start, end } = range(state);
  return stepsOf(start, end, state.step).step;
}

// aboutThen returns what there is to say of the answer that another one is compared with.
function aboutThen({ data: { result, resultType }, series: all }, then) {
  if (!then) {
    return [];
  }
  const { words, error, answer } = then;
  if (error) {
    return [message("warning", `${capital(words)}: ${error.message}`)];
  }
  if (answer.data.result.length === 0) {
    return [message("note", `No series has a value ${words}.`)];
  }
  const isWhole = !(all > result.length) && !(answer.series > answer.data.result.length) && ["matrix", "vector"].includes(resultType);
  return [...notes(answer).map((text) => message("warning", `${capital(words)}: ${text}`)), ...(isWhole ? gone(result, answer.data.result, words).map((text) => message("note", text)) : [])];
}

function facts(answer, took, step) {
  const { data: { result: found }, series: all } = answer;
  const shown = `${shownOf(found.length, answer)} series${all > found.length ? " shown" : ""}, `;
  const isList = Array.isArray(found) && typeof found[0] === "object";
  return element("p", { class: "facts" }, `${isList ? shown : ""}${count(took)} ms${step ? `, step ${formatDuration(step)}` : ""}`);
}

// more says which lines are shown if there are more, and has buttons that show more, or the highest.
function more(expr, { data: { result: found }, series: all }, state, navigate) {
  if (!(all > found.length)) {
    return "";
  }
  const { options, selectedIndex } = document.querySelector("#query select[name=lines]");
  const next = options[selectedIndex + 1], topk = `topk(10, ${expr})`;
  const button = (text, changes) => element("button", { type: "button", onclick: () => navigate(changes) }, text);
  return element("p", { class: "more" }, "These are the first in the order of their labels. ",
    ...(next ? [button(`Show ${next.text}`, { lines: next.value }), " "] : []), button("Show the 10 highest", { expr: state.expr.map((text) => (text === expr ? topk : text)) }));
}

// changedButton shows what changed in the time of the graph, of an expression.
function changedButton(letter, navigate) {
  return element("button", { type: "button", class: "as-link", title: "The series that differ most from as long before", onclick: () =>
    navigate({ changed: letter, scope: "" }).then(() => document.querySelector("#query .changes").scrollIntoView({ block: "nearest" })) }, "What changed?");
}

// linkButton copies a link to what is shown: with the end of its time, and without a refresh.
function linkButton(end) {
  return element("button", { type: "button", class: "as-link copy-link", title: "Copy a link with this time, which shows the same tomorrow", onclick: ({ currentTarget: button }) => {
    const link = new URL(location.href);
    link.searchParams.set("end", utc(Math.ceil(end)));
    link.searchParams.delete("refresh");
    const say = (text) => {
      button.textContent = text;
      announce(text);
      button.addEventListener("blur", () => { button.textContent = "Copy link"; }, { once: true });
    };
    copy(link.href).then(() => say("Link copied"), (err) => say(err.message));
  } }, "Copy link");
}
