// Text for the clipboard.

import { element } from "../common/dom.js";

// copy puts text into the clipboard, and shows at a button that it has.
export async function copy(text, button) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text).catch(() => copyMarked(text));
  } else {
    copyMarked(text); // pages that come without TLS have no clipboard
  }
  button.classList.add("done");
  button.addEventListener("blur", () => button.classList.remove("done"), { once: true });
  button.focus();
}

function copyMarked(text) {
  const field = element("textarea", { class: "unseen", "aria-label": "Text to copy" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}
