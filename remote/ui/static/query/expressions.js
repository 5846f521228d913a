// The expressions of the page: what is typed, and which of them are shown. In the URL each is a parameter
// expr, and hide names those that are not shown, as numbers from 0 with commas between.

import { range } from "../common/api.js";
import { element, shape } from "../common/dom.js";
import * as drafts from "./drafts.js";
import { makeField } from "./expressionfield.js";
import * as queryHistory from "./history.js";
import { letter } from "./lines.js";

let form, list;
let rows = []; // of the form: the node, the editor and whether it is hidden
let state = { expr: [], hide: "" }; // of the URL
let filling = false;

// fill writes the expressions of a state into the form, or what was typed in this state and not run. Editors that are there
// stay: one may have the focus.
export function fill(of, wanted) {
  if (!form) {
    start(of);
  }
  state = wanted;
  const draft = drafts.of(state.expr);
  if (isAsInURL() && !draft) {
    sayChanged();
    return; // rows without a text stay, too
  }
  write(draft ?? textsOf(state));
}

// write writes expressions into the form.
function write(texts) {
  filling = true;
  while (rows.length > Math.max(1, texts.length)) {
    drop(rows.pop());
  }
  while (rows.length < Math.max(1, texts.length)) {
    addRow();
  }
  rows.forEach((row, i) => {
    const { text, hidden } = texts[i] ?? { text: "", hidden: false };
    row.hidden = hidden;
    if (row.editor.text.trim() !== text.trim()) {
      row.editor.text = text;
    }
  });
  filling = false;
  name();
  sayChanged();
}

// read returns the state that the form says.
export function read() {
  const all = typed();
  return { expr: all.map(({ text }) => text), hide: all.flatMap(({ hidden }, i) => (hidden ? [i] : [])).join(",") };
}

// shown returns the expressions of a state that are to be shown, with their letters.
export function shown(state) {
  return textsOf(state).map(({ text, hidden }, i) => ({ expr: text, letter: letter(i), hidden })).filter(({ hidden }) => !hidden);
}

// ran takes note of expressions that the server has answered: { expr, error }. Errors are underlined where they are. What a refresh has asked
// for is not among what was run.
export function ran(asked, isRefresh) {
  if (!isRefresh) {
    queryHistory.add(asked.filter(({ error }) => !error?.message.includes("parse error")).map(({ expr }) => expr));
  }
  for (const row of rows) {
    row.editor.mark(asked.find(({ expr }) => expr === row.editor.text.trim())?.error);
  }
}

// textsOf returns the expressions of a state, and which of them are hidden.
function textsOf({ expr, hide }) {
  const hidden = hide.split(",");
  return expr.map((text, i) => ({ text, hidden: hidden.includes(String(i)) }));
}

// typed returns the expressions of the form that have a text.
function typed() {
  return rows.map(({ editor, hidden }) => ({ text: editor.text.trim(), hidden })).filter(({ text }) => text !== "");
}

// isAsInURL says whether the form has what the URL says.
function isAsInURL() {
  return rows.length > 0 && JSON.stringify(typed()) === JSON.stringify(textsOf(state).map(({ text, hidden }) => ({ text: text.trim(), hidden })));
}

function start(of) {
  form = of;
  list = element("div", { class: "rows" });
  form.querySelector(".expressions").prepend(list);
  form.querySelector(".add").addEventListener("click", () => {
    addRow();
    name();
    rows.at(-1).editor.focus();
  });
  form.querySelector(".undo").addEventListener("click", () => {
    drafts.keep(state.expr);
    write(textsOf(state));
    rows[0].editor.focus();
  });
  form.addEventListener("submit", () => {
    drafts.keep(read().expr);
    drafts.keep(state.expr);
  }, true); // before the form is filled with what was run
}

// changed keeps what is typed as a draft, unless it is what the URL says.
function changed() {
  if (filling) {
    return;
  }
  const all = typed();
  drafts.keep(state.expr, all.length > 0 && !isAsInURL() ? all : undefined);
  sayChanged();
}

// sayChanged says, in the place of the keys, when the result is not of what the form has.
function sayChanged() {
  const isChanged = state.expr.length > 0 && !isAsInURL();
  form.querySelector(".below .hint").hidden = isChanged;
  form.querySelector(".below .changed").hidden = !isChanged;
}

function addRow() {
  const row = { hidden: false };
  row.eye = element("button", { type: "button", class: "eye", onclick: () => {
    row.hidden = !row.hidden;
    name();
    form.requestSubmit();
  } });
  row.remove = element("button", { type: "button", class: "remove", onclick: () => remove(row) }, "×");
  const { node, editor, tools } = makeField({
    label: "PromQL expression", placeholder: "rate(adapter_write_samples_total[5m])",
    onRun: () => form.requestSubmit(), times: () => range(state), onChange: changed,
  });
  node.setAttribute("role", "group");
  node.prepend(row.eye);
  tools.append(row.remove);
  rows.push(Object.assign(row, { node, editor }));
  list.append(node);
}

function drop({ editor, node }) {
  editor.destroy();
  node.remove();
}

function remove(row) {
  const at = rows.indexOf(row);
  const had = row.editor.text.trim() !== "";
  rows.splice(at, 1);
  drop(row);
  name();
  rows[Math.max(0, at - 1)].editor.focus();
  if (had) {
    form.requestSubmit();
  }
}

// name gives each row its key, which a single one does not need.
function name() {
  const several = rows.length > 1;
  list.classList.toggle("several", several);
  rows.forEach((row, i) => {
    const called = letter(i);
    row.node.classList.toggle("hidden-one", row.hidden);
    row.node.setAttribute("aria-label", several ? `Expression ${called}` : "Expression");
    row.editor.label = several ? `PromQL expression ${called}` : "PromQL expression";
    row.eye.hidden = !several && !row.hidden;
    row.eye.replaceChildren(element("span", { class: "key" }, called), eye(row.hidden));
    row.eye.setAttribute("aria-pressed", String(!row.hidden));
    row.eye.setAttribute("aria-label", `Show expression ${called}`);
    row.eye.title = row.hidden ? "Show this expression" : "Hide this expression";
    row.remove.hidden = !several;
    row.remove.setAttribute("aria-label", `Remove expression ${called}`);
    row.remove.title = "Remove this expression";
  });
}

// eye draws an open or a closed one.
function eye(isClosed) {
  const lines = ["M2 10c2-4 5-5.5 8-5.5s6 1.5 8 5.5c-2 4-5 5.5-8 5.5S4 14 2 10z", "M10 7.5a2.5 2.5 0 1 0 0 5a2.5 2.5 0 1 0 0-5z", ...(isClosed ? ["M3 17L17 3"] : [])];
  return shape("svg", { viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-width": 1.5 },
    ...lines.map((d) => shape("path", { d })));
}
