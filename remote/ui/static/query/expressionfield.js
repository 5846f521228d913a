// The field of an expression: its editor, and the buttons that format it and bring back what was run.

import { ask } from "../common/api.js";
import { element, message } from "../common/dom.js";
import { makeEditor } from "./editor.js";
import * as queryHistory from "./history.js";

// makeField returns the node of a field, its editor, which takes the options of makeEditor, and the node of its buttons.
export function makeField({ onChange = () => {}, ...options }) {
  const said = element("div", { class: "said", "aria-live": "polite" });
  const history = () => queryHistory.choose((expr) => editor.replace(expr));
  const tools = element("div", { class: "tools" },
    element("button", { type: "button", title: "Format the expression", onclick: () => format(editor, said) }, "Format"),
    element("button", { type: "button", title: "Query history (Alt+H)", onclick: history }, "History"));
  const node = element("div", { class: "expression", onkeydown: (event) => {
    if (event.altKey && event.code === "KeyH") {
      event.preventDefault();
      history();
    }
  } });
  const editor = makeEditor(node, { ...options, onChange: () => {
    said.replaceChildren();
    onChange();
  } });
  node.append(tools, said);
  return { node, editor, tools };
}

async function format(editor, said) {
  const before = editor.text;
  if (before.trim() === "") {
    return;
  }
  try {
    const { data } = await ask("format_query", { query: before.trim() }, { post: true });
    if (editor.text === before) { // nothing was typed while the server was asked
      editor.replace(data);
    }
  } catch (err) {
    if (editor.text === before) {
      said.replaceChildren(message("error", err.message));
      editor.mark(err);
    }
  }
}
