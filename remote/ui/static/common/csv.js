// Lists as files of comma-separated values.

import { element } from "./dom.js";

// csv writes rows of texts and numbers as RFC 4180 says. A text that a spreadsheet would take for a formula gets an apostrophe in front.
export function csv(rows) {
  const safe = (cell) => (typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell));
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((cells) => `${cells.map((cell) => quoted(safe(cell))).join(",")}\r\n`).join("");
}

// csvButton saves rows, which rows() returns with their titles, as a file.
export function csvButton(what, rows) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([csv(rows())], { type: "text/csv" }));
    element("a", { href: url, download: `promtable-${what.toLowerCase().match(/[a-z0-9]+/g).join("-")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000); // some browsers read it late
  };
  return element("button", { type: "button", class: "csv", "aria-label": `CSV of: ${what}`, onclick: save }, "CSV");
}
