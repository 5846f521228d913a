// A question before something that cannot be taken back.

import { element } from "./dom.js";

// confirm asks a question about a subject, with two buttons, and calls confirmed if the answer is go.
export function confirm({ title, subject, text, keep, go, confirmed }) {
  const close = () => dialog.close();
  const dialog = element("dialog", { class: "confirm", "aria-labelledby": "confirm-title", onclose: () => dialog.remove() },
    element("h2", { id: "confirm-title" }, title), element("pre", {}, subject), element("p", {}, text),
    element("div", { class: "buttons" }, element("button", { type: "button", onclick: close }, keep),
      element("button", { type: "button", class: "primary", onclick: () => { close(); confirmed(); } }, go)));
  document.body.append(dialog);
  dialog.showModal();
}
