// What an editor offers while an expression is typed: metrics with their types and help, functions with their arguments,
// labels, their values, and expressions that were run.

import { ask, isTruncated } from "../common/api.js";
import * as queryHistory from "./history.js";

const keep = 5 * 60; // for so many seconds answers are good, and times are rounded to it
const mostNames = 10000; // of metrics, and as many of their metadata
const mostValues = 1000; // of labels, or their names

// completions returns the extension that offers them, and moves through what it offers. An option is chosen when
// the text says another one than what is typed, so that Enter can take it; otherwise Enter runs the expression.
export function completions(cm, times = lastHour) {
  const client = makeClient(cm, times);
  const server = new cm.HybridComplete(client, mostNames);
  let from = 0, moved = false;
  const source = async (context) => {
    const result = await offer(cm, client, server, context);
    if (result) {
      ({ from } = result);
    }
    return result;
  };
  const move = (forward, by) => (view) => {
    const before = moved;
    moved = true; // choose is called by what follows
    const done = cm.moveCompletionSelection(forward, by)(view);
    moved = done || before;
    return done;
  };
  const choose = ({ view, state, docChanged }) => {
    if (cm.completionStatus(state) !== "active" || docChanged) {
      moved = false;
    }
    if (cm.completionStatus(state) !== "active" || moved) {
      return;
    }
    const options = cm.currentCompletions(state);
    const typed = state.sliceDoc(from, state.selection.main.head);
    const same = options.filter((option) => option.label === typed);
    const want = typed === "" || (same.length > 0 && !same.some(({ calls }) => calls)) ? -1 : 0;
    if ((cm.selectedCompletionIndex(state) ?? -1) !== want) {
      view.dispatch({ effects: cm.setSelectedCompletion(want) });
    }
  };
  return [
    cm.autocompletion({ override: [source], selectOnOpen: false, icons: false, defaultKeymap: false, interactionDelay: 0, optionClass: ({ type }) => `pq-of-${type}` }),
    cm.EditorView.updateListener.of(choose),
    cm.Prec.high(cm.keymap.of([
      { key: "Ctrl-Space", run: cm.startCompletion },
      { key: "Escape", run: cm.closeCompletion },
      { key: "ArrowDown", run: move(true) },
      { key: "ArrowUp", run: move(false) },
      { key: "PageDown", run: move(true, "page") },
      { key: "PageUp", run: move(false, "page") },
    ])),
  ];
}

function lastHour() {
  const end = Date.now() / 1000;
  return { start: end - 3600, end };
}

// offer returns what fits at a place, or null.
async function offer(cm, client, server, context) {
  const { state, pos, explicit } = context;
  client.typed = /[\w:.-]*$/.exec(state.sliceDoc(0, pos))[0];
  client.isCut = false;
  const result = await server.promQL(context);
  const before = state.sliceDoc(pos - 1, pos);
  if (context.aborted || (!explicit && result.from === pos && !/[{(,"'[\d]/.test(before))) {
    return null; // after a whole word there is nothing to say
  }
  const typed = state.sliceDoc(result.from, pos);
  const isWholeOperator = ({ label, type }) => type === undefined && label === typed;
  const options = result.options.filter((option) => !isWholeOperator(option)).map((option) => described(cm, option));
  if (result.from === 0 && pos === state.doc.length) {
    const names = new Set(options.map(({ label }) => label));
    options.push(...queryHistory.list().filter((expr) => !names.has(expr)).map(pastOption));
  }
  return options.length === 0 ? null : { ...result, options, validFor: client.isCut ? undefined : result.validFor };
}

const aggregations = { topk: "k, vector", bottomk: "k, vector", limitk: "k, vector", limit_ratio: "ratio, vector", quantile: "φ, vector", count_values: "label, vector" };

// described says the arguments of what can be called, and calls it when it is taken.
function described(cm, option) {
  const f = option.detail === "function" && cm.functions.get(option.label);
  if (f) {
    const isEmpty = f.argTypes.length === 0; // range() is seldom meant by what rate() begins with
    return { ...option, type: "function", calls: true, detail: signature(f), apply: call(cm, isEmpty), ...(isEmpty && { boost: -1 }) };
  }
  if (option.detail === "aggregation") {
    return { ...option, calls: true, detail: `(${aggregations[option.label] ?? "vector"})`, apply: call(cm, false) };
  }
  return option;
}

// signature writes the types of arguments: in brackets the last one if it may be left out, with dots if it may be repeated.
function signature({ argTypes, variadic }) {
  const names = { vector: "vector", matrix: "range vector", scalar: "scalar", string: "string" };
  const list = argTypes.map((type) => names[type]);
  if (variadic !== 0) {
    list.push(`[${list.pop()}${variadic === 1 ? "" : " …"}]`);
  }
  return `(${list.join(", ")})`;
}

// call returns what writes a name with its parentheses, and stands between them if there is something to write there.
function call(cm, isEmpty) {
  return (view, { label }, from, to) => {
    const has = view.state.sliceDoc(to, to + 1) === "(";
    const at = from + label.length + (isEmpty && !has ? 2 : 1);
    view.dispatch({ changes: { from, to, insert: label + (has ? "" : "()") }, selection: { anchor: at }, userEvent: "input.complete", scrollIntoView: true });
    if (!isEmpty && !has) {
      cm.startCompletion(view);
    }
  };
}

// pastOption offers an expression that was run, in the place of all that is typed.
function pastOption(expr) {
  return {
    label: expr.replace(/\s+/g, " "), detail: "run before", type: "past", boost: -50,
    apply: (view) => view.dispatch({
      changes: { from: 0, to: view.state.doc.length, insert: expr }, selection: { anchor: expr.length }, userEvent: "input.complete", scrollIntoView: true,
    }),
  };
}

// makeClient returns what codemirror-promql asks. It never throws: without an answer nothing is offered. Its fields typed, the word at
// the cursor, and isCut, whether there is more than was answered, are of the completion that runs.
function makeClient(cm, times) {
  const answers = new Map();
  const get = async (path, parameters = {}) => {
    const key = JSON.stringify([path, parameters]);
    const now = Date.now() / 1000;
    for (const [old, { at }] of answers) {
      if (now - at > keep) {
        answers.delete(old);
      }
    }
    if (!answers.has(key)) {
      const answer = ask(path, parameters).catch(() => {
        answers.delete(key); // perhaps the next time
        return { data: [] };
      });
      answers.set(key, { at: now, answer });
    }
    return answers.get(key).answer;
  };
  // list returns names or values. If there are more than the limit it asks for those with what is typed in them.
  const list = async (path, label, matchers, limit) => {
    const asked = (of, most) => get(path, { ...during(times), ...(of.length ? { "match[]": `{${of.join(", ")}}` } : {}), limit: most });
    const all = await asked(matchers, limit);
    if (!isTruncated(all)) {
      return all.data;
    }
    client.isCut = true;
    if (!label || client.typed === "") {
      return all.data;
    }
    const some = await asked([...matchers, `${JSON.stringify(label)}=~${JSON.stringify(`(?i:.*${quoted(client.typed)}.*)`)}`], mostValues);
    return some.data;
  };
  const client = {
    typed: "",
    isCut: false,
    metricNames: () => list("label/__name__/values", "__name__", [], mostNames),
    metricMetadata: async () => (await get("metadata", { limit: mostNames })).data,
    labelNames: (metric) => list("labels", undefined, selection(cm, metric), mostValues),
    labelValues: (label, metric, matchers) =>
      list(`label/${encodeURIComponent(label)}/values`, label, selection(cm, metric, matchers?.filter(({ name }) => name !== label)), mostValues),
  };
  return client;
}

// during returns the parameters of the times that are shown, rounded, so that the same is asked for a while.
function during(times) {
  try {
    const { start, end } = times();
    return { start: Math.floor(start / keep) * keep, end: Math.ceil(end / keep) * keep };
  } catch {
    return during(lastHour); // the URL has no time
  }
}

// selection returns those matchers that the server takes, of a selector that is being typed: none if together they match everything.
function selection(cm, metric, matchers = []) {
  const all = matchers.map(({ type, name, value }) => ({ name, value, operator: cm.operators.get(type) ?? "=" })).filter(isWhole);
  const selects = ({ operator, value }) => (operator === "=" ? value !== "" : operator === "=~" && !new RegExp(`^(?:${value})$`).test(""));
  if (metric) {
    all.unshift({ name: "__name__", operator: "=", value: metric });
  }
  return all.some(selects) ? all.map(({ name, operator, value }) => `${JSON.stringify(name)}${operator}"${value}"`) : [];
}

// isWhole says whether a matcher is one yet. Its value is as it was typed.
function isWhole({ name, operator, value }) {
  try {
    JSON.parse(`"${value}"`);
    return name !== "" && (!operator.includes("~") || (!/\(\?|\\[1-9bBpP]/.test(value) && Boolean(new RegExp(value))));
  } catch {
    return false;
  }
}

// quoted writes a text as a regular expression of it.
function quoted(text) {
  return text.replace(/[.*+?^${}()|[\]\\-]/g, (c) => (c === "-" ? "-" : `\\${c}`));
}
