// A question before something that cannot be taken back.

import { ask } from "./api.js";
import { element, message } from "./dom.js";

// confirmEnd asks whether something that a node lists is to end, with two buttons: its title, the text of the subject, and what follows. If the answer is go it deletes
// the path, and paints the node again. What is wrong is shown in problems.
export function confirmEnd({ title, subject, text, keep, go, path, node, problems, paint }) {
  const close = () => dialog.close();
  const confirmed = async () => {
    close();
    node.querySelector("h2").focus({ preventScroll: true }); // its button goes
    try {
      await ask(path, {}, { method: "DELETE" });
      problems.replaceChildren();
      await paint();
    } catch (err) {
      problems.replaceChildren(message("error", err.message));
    }
  };
  const dialog = element("dialog", { class: "confirm", "aria-labelledby": "confirm-title", onclose: () => dialog.remove() },
    element("h2", { id: "confirm-title" }, title), element("pre", {}, subject), element("p", {}, text),
    element("div", { class: "buttons" }, element("button", { type: "button", onclick: close }, keep),
      element("button", { type: "button", class: "primary", onclick: confirmed }, go)));
  document.body.append(dialog);
  dialog.showModal();
}
