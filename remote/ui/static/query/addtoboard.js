// What is shown becomes a panel of a board.

import { element, message } from "../common/dom.js";
import { link } from "../common/selectors.js";
import * as store from "../boards/store.js";
import * as expressions from "./expressions.js";

// boardButton opens a dialog that adds the expressions of a state to a board.
export function boardButton(state) {
  return element("button", { type: "button", class: "as-link", title: "Make this a panel of a board", onclick: () => open(state) }, "Add to board");
}

async function open(state) {
  const exprs = expressions.shown(state).map(({ expr }) => expr);
  const said = element("div", { role: "status" });
  const field = (attributes) => element("input", { autocomplete: "off", spellcheck: "false", ...attributes });
  const board = field({ list: "boards-there", maxlength: 100, required: true, placeholder: "a board, or a new one" }), title = field({ maxlength: 300, value: exprs[0].slice(0, 300) });
  const there = element("datalist", { id: "boards-there" });
  const add = element("button", { type: "submit", class: "primary" }, "Add");
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const form = element("form", { onsubmit: async (event) => {
    event.preventDefault();
    add.disabled = true;
    try {
      const name = board.value.trim();
      await addTo(name, { title: title.value.trim(), kind: state.view === "graph" ? "graph" : "table", exprs, ...(state.view === "graph" && state.mode && { mode: state.mode }), ...(state.view === "graph" && state.unit && { unit: state.unit }) });
      said.replaceChildren(element("p", {}, "Added to ", element("a", { href: link("boards", { board: name, range: state.range, end: state.end }), onclick: () => dialog.close() }, name), "."));
    } catch (error) {
      said.replaceChildren(message("error", error.message));
    }
    add.disabled = false;
  } }, element("label", { class: "wide" }, "Board ", board), element("label", { class: "wide" }, "Title of the panel ", title), there, element("div", { class: "controls" }, add, close), said);
  const dialog = element("dialog", { class: "past", "aria-label": "Add to board", onclose: () => dialog.remove() }, form);
  document.body.append(dialog);
  dialog.showModal();
  try {
    const { boards, readOnly } = await store.list();
    there.append(...boards.map(({ name }) => element("option", { value: name })));
    if (readOnly) {
      add.disabled = true;
      said.replaceChildren(message("warning", "Boards cannot be changed here."));
    }
  } catch (error) {
    said.replaceChildren(message("error", error.message));
  }
}

async function addTo(name, panel) {
  const { boards } = await store.list();
  if (!boards.some((one) => one.name === name)) {
    return store.save(name, { title: name, panels: [panel] });
  }
  const { board, tag } = await store.load(name);
  return store.save(name, { ...board, panels: [...board.panels, panel] }, tag);
}
