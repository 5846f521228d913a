// The tab Boards: several graphs, values and tables beside each other, by name. A board that was changed and not saved is in the URL.

import { range } from "../common/api.js";
import { element, message } from "../common/dom.js";
import { save as saveFile } from "../common/export.js";
import { count, time } from "../common/format.js";
import { link } from "../common/selectors.js";
import { table } from "../common/table.js";
import { refresh } from "../query/refresh.js";
import { stepsOf } from "../query/requests.js";
import { between, moved } from "../query/timeranges.js";
import { boardOf, isDashboard } from "./grafana.js";
import { panelOf } from "./panels.js";
import * as store from "./store.js";
import { choices, substituted, titled } from "./variables.js";

// atOnce is how many panels ask at the same time, and near how far from what is seen panels are asked for.
const atOnce = 4, near = "1500px";

let chosen = []; // the values of variables that the URL says

// imported has what was left out of the draft that was imported last.
let imported = { draft: "", left: [] };

export function fill(_, state) {
  chosen = state.var;
}

export function read() {
  return { var: chosen };
}

export async function show(state, result, signal, navigate) {
  const { boards, readOnly } = await store.list(signal);
  if (!state.board && !state.draft) {
    result.replaceChildren(...listOf(boards, readOnly, navigate));
    return;
  }
  const { board, tag } = state.draft ? { board: checked(JSON.parse(state.draft)), tag: state.tag } : await store.load(state.board, signal);
  return showBoard({ board, tag, readOnly, boards }, state, result, signal, navigate);
}

// checked returns a board, or throws an Error if it is none.
function checked(board) {
  if (!Array.isArray(board?.panels)) {
    throw new Error("This is no board: it has no panels.");
  }
  return board;
}

function listOf(boards, readOnly, navigate) {
  const none = element("p", {}, "There are no boards yet. A graph of the tab Query becomes a panel by ", element("b", {}, "Add to board"), ".");
  return [
    element("div", { class: "controls board-tools" }, ...(readOnly ? [] : [tool("New board", () => navigate({ draft: JSON.stringify({ title: "New board", panels: [] }), edit: "1" }))]), importer(navigate)),
    boards.length === 0 ? none : table(undefined, [
      { title: "Board", kind: "text", value: ({ name }) => name, cell: ({ name }) => element("a", { href: link("boards", { board: name }) }, name) },
      { title: "Title", kind: "words", value: ({ title }) => title, cell: ({ title }) => title },
      { title: "Panels", kind: "number", value: ({ panels }) => panels, cell: ({ panels }) => count(panels) },
      { title: "Saved", kind: "time", value: ({ saved }) => saved, cell: ({ saved }) => time(saved) },
    ], boards),
  ];
}

function tool(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

// importer reads a board, or a dashboard of Grafana, from a file, and shows it as a draft.
function importer(navigate) {
  const problem = element("span", { class: "when-problem", role: "alert" });
  const field = element("input", { type: "file", accept: ".json,application/json", onchange: async () => {
    try {
      const json = JSON.parse(await field.files[0].text());
      const { board, left } = isDashboard(json) ? boardOf(json) : { board: checked(json), left: [] };
      imported = { draft: JSON.stringify(board), left };
      navigate({ board: "", tag: "", var: [], draft: imported.draft, edit: "" });
    } catch (error) {
      problem.textContent = error.message;
    }
  } });
  return element("label", { class: "board-import" }, "Import JSON, of a board or a Grafana dashboard ", field, problem);
}

async function showBoard({ board, tag, readOnly, boards }, state, result, signal, navigate) {
  const isDraft = state.draft !== "", isEdited = state.edit !== "" && !readOnly;
  const change = (to) => navigate({ draft: JSON.stringify(to), tag });
  const { start, end } = range(state);
  const times = { start, end, step: stepsOf(start, end, "").step };
  const problems = element("div", {});
  const { values, nodes } = await choices(board, state.var, times, signal, (to) => {
    chosen = to;
    navigate({ var: to });
  }).catch((error) => {
    if (signal.aborted) {
      throw error;
    }
    problems.append(message("error", error.message));
    return { values: {}, nodes: [] };
  });
  const zooms = { onZoom: (from, to) => navigate(between(from, to)), onZoomOut: () => navigate(moved(state, 0, 2, Math.ceil(Date.now() / 1000))) };
  const panels = board.panels.map((panel) => ({ panel, ...panelOf(panel, signal, zooms) }));
  const exprsOf = (panel, at) => panel.exprs.map((expr) => substituted(expr, values, at));
  const titleOf = (panel, i) => titled(panel.title, values) || `Panel ${i + 1}`;
  const frames = panels.map(({ panel, body }, i) => element("div", { class: panel.wide ? "board-panel wide" : "board-panel", "data-kind": panel.kind, role: "group", "aria-label": titleOf(panel, i) },
    element("div", { class: "panel-head" }, element("h3", {}, titleOf(panel, i)),
      element("a", { href: link("query", { expr: exprsOf(panel, times), view: panel.kind === "graph" ? "graph" : "table", mode: panel.mode, unit: panel.unit, range: state.range, end: state.end }) }, "Open in Query")),
    ...(isEdited ? [editorOf(board, i, change)] : []), body));
  const left = imported.draft === state.draft ? imported.left : [];
  result.replaceChildren(
    element("div", { class: "board-head" }, element("h2", {}, board.title || state.board), ...(isDraft ? [element("span", { class: "changed" }, "Not saved")] : []), element("a", { href: link("boards", {}) }, "All boards")),
    problems, ...(left.length > 0 ? [message("note", "Not all of the dashboard became a board:"), element("ul", { class: "board-left" }, ...left.map((text) => element("li", {}, text)))] : []),
    toolsOf({ board, tag, readOnly, boards, isDraft, isEdited }, state, problems, navigate),
    ...(isEdited ? [boardEditor(board, change)] : []),
    ...(nodes.length > 0 ? [element("div", { class: "controls variables" }, ...nodes)] : []),
    board.panels.length === 0 ? element("p", {}, "This board has no panels yet. A graph of the tab Query becomes one by ", element("b", {}, "Add to board"), ".") : element("div", { class: "board-panels" }, ...frames));
  const seen = new Set(), limited = limiter(atOnce);
  const showAll = (some, at) => Promise.all(some.map((panel) => limited(() => panel.show(exprsOf(panel.panel, at), at))));
  await whenNear(frames, near, signal, (found) => {
    found.forEach((i) => seen.add(panels[i]));
    return showAll(found.map((i) => panels[i]), times);
  });
  if (state.refresh && !state.end) {
    refresh(state.refresh, () => showAll([...seen], { ...range(state), step: times.step }), () => panels.some(({ busy }) => busy()), problems, signal);
  }
  return `Board ${board.title || state.board} with ${count(board.panels.length)} panels.`;
}

// limiter returns a function that calls others, at most n at the same time.
function limiter(n) {
  const waiting = [];
  let running = 0;
  const next = () => {
    if (running < n && waiting.length > 0) {
      running++;
      waiting.shift()().finally(() => {
        running--;
        next();
      });
    }
  };
  return (task) => new Promise((resolve, reject) => {
    waiting.push(() => task().then(resolve, reject));
    next();
  });
}

// whenNear calls found with the indices of nodes that come as near to what is seen as a margin, once each, until signal is aborted. It waits for the first call.
function whenNear(nodes, margin, signal, found) {
  if (nodes.length === 0) {
    return undefined;
  }
  return new Promise((resolve, reject) => {
    const observer = new IntersectionObserver((entries) => {
      const isNear = entries.filter(({ isIntersecting }) => isIntersecting).map(({ target }) => target);
      isNear.forEach((node) => observer.unobserve(node));
      found(isNear.map((node) => nodes.indexOf(node))).then(resolve, reject);
    }, { rootMargin: `${margin} 0px` });
    nodes.forEach((node) => observer.observe(node));
    signal.addEventListener("abort", () => {
      observer.disconnect();
      resolve();
    });
  });
}

// toolsOf returns what is done with a whole board.
function toolsOf({ board, tag, readOnly, boards, isDraft, isEdited }, state, problems, navigate) {
  const attempt = (what) => what().catch((error) => problems.replaceChildren(message("error", error.message)));
  const name = element("input", { size: 20, maxlength: 100, "aria-label": "Name of the board", placeholder: "name", value: state.board, spellcheck: "false" });
  const save = () => attempt(async () => {
    const to = state.board || name.value.trim();
    if (to === "") {
      name.focus();
      throw new Error("A board needs a name.");
    }
    await store.save(to, board, state.board ? tag : "");
    await navigate({ board: to, draft: "", tag: "", edit: "" });
  });
  const remove = () => attempt(async () => {
    await store.remove(state.board, tag);
    await navigate({ board: "", draft: "", tag: "", edit: "" });
  });
  const isStored = boards.some((one) => one.name === state.board);
  return element("div", { class: "controls board-tools" },
    ...(readOnly ? [] : [
      isEdited ? tool("Done", () => navigate({ edit: "" })) : tool("Edit", () => navigate({ edit: "1" })),
      ...(isDraft ? [...(state.board ? [] : [name]), tool("Save", save, { class: "primary" }), tool("Discard", () => navigate({ draft: "", tag: "", edit: "" }))] : []),
      ...(isEdited && isStored && !isDraft ? [confirmed("Delete board", remove)] : []),
    ]),
    tool("Export JSON", () => saveFile(`${state.board || "board"}.json`, "application/json", JSON.stringify(board, undefined, 2))));
}

// confirmed is a button that does something at the second click.
function confirmed(text, onclick) {
  const button = tool(text, () => {
    if (button.dataset.asked) {
      onclick();
      return;
    }
    button.dataset.asked = "1";
    button.textContent = `${text}: click again`;
  });
  button.addEventListener("blur", () => {
    delete button.dataset.asked;
    button.textContent = text;
  });
  return button;
}

// boardEditor changes the title and the variables of a board.
function boardEditor(board, change) {
  const variables = board.variables ?? [];
  const title = field("Title", board.title, (text) => change({ ...board, title: text }), 30);
  const parts = ["name", "label", "metric"].map((part) => element("input", { size: 12, placeholder: { name: "job", label: "job", metric: "up" }[part], "aria-label": `${part} of the variable`, spellcheck: "false" }));
  const add = tool("Add variable", () => {
    const [name, label, metric] = parts.map((input) => input.value.trim());
    change({ ...board, variables: [...variables, { name, label: label || name, ...(metric && { metric }) }] });
  });
  return element("div", { class: "controls board-edit" }, title, ...variables.map(({ name }, i) => tool(`Remove $${name}`, () => change({ ...board, variables: variables.toSpliced(i, 1) }))),
    element("span", {}, "Variable ", parts[0], " of label ", parts[1], " of ", parts[2], " "), add);
}

// editorOf changes a panel.
function editorOf(board, i, change) {
  const panel = board.panels[i];
  const put = (...panels) => change({ ...board, panels: board.panels.toSpliced(i, 1, ...panels) });
  const swap = (j) => {
    const panels = [...board.panels];
    [panels[i], panels[j]] = [panels[j], panels[i]];
    change({ ...board, panels });
  };
  const kind = element("select", { "aria-label": "Kind", onchange: () => put({ ...panel, kind: kind.value }) }, ...["graph", "stat", "table"].map((name) => element("option", { value: name, selected: name === panel.kind }, name)));
  const exprs = panel.exprs.map((expr, j) => field(`Expression ${j + 1}`, expr, (text) => put({ ...panel, exprs: text ? panel.exprs.toSpliced(j, 1, text) : panel.exprs.toSpliced(j, 1) }), 40, "expr"));
  return element("div", { class: "controls panel-edit" }, field("Title", panel.title, (text) => put({ ...panel, title: text }), 20), element("label", {}, "Kind ", kind),
    element("label", {}, element("input", { type: "checkbox", checked: panel.wide === true, onchange: ({ target }) => put({ ...panel, wide: target.checked }) }), " Wide"),
    tool("←", () => swap(i - 1), { "aria-label": "Move to the front", disabled: i === 0 }), tool("→", () => swap(i + 1), { "aria-label": "Move to the back", disabled: i === board.panels.length - 1 }),
    tool("Remove", () => put()), ...exprs);
}

// field is a text that is changed.
function field(title, value, onchange, size, className) {
  return element("label", { class: className }, `${title} `, element("input", { value, size, spellcheck: "false", autocomplete: "off", onchange: ({ target }) => onchange(target.value.trim()) }));
}
