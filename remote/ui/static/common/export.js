// Rows as text for other programs, on the clipboard and in files.

import { element } from "./dom.js";

// tsv writes rows of texts with tabs between them, for a spreadsheet that they are pasted into.
export function tsv(rows) {
  return rows.map((cells) => cells.map((text) => text.replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n");
}

// csv writes rows of texts as RFC 4180 says. A text that a spreadsheet would take for a formula gets an apostrophe in front.
export function csv(rows) {
  const isFormula = (text) => /^[=+\-@\t\r]/.test(text) && !/^[+-](Inf|[\d.]+(e[+-]?\d+)?)$/.test(text);
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((cells) => `${cells.map((text) => quoted(isFormula(text) ? `'${text}` : text)).join(",")}\r\n`).join("");
}

// copy puts a text on the clipboard, or throws an Error.
export async function copy(text) {
  // A page that came over plain HTTP has no such object, and it may refuse.
  if (await navigator.clipboard?.writeText(text).then(() => true, () => false)) {
    return;
  }
  const before = document.activeElement;
  const box = element("textarea", { class: "unseen", "aria-hidden": "true" });
  box.value = text;
  document.body.append(box);
  box.select();
  const done = document.execCommand("copy");
  box.remove();
  before?.focus();
  if (!done) {
    throw new Error("The browser does not allow copying.");
  }
}

// save gives a text, or the bytes of a Blob, to the browser as a file.
export function save(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // some browsers read it late
}
