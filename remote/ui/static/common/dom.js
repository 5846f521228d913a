// Elements and tables.

import { count } from "./format.js";

// element makes one: attributes by name, children that are nodes or text. What
// comes from the server goes in as text, never as HTML.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) {
      made.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

// pageRows is how many rows of a table are shown at once.
const pageRows = 200;

// table makes a table whose rows can be sorted by a click on a heading. A column
// has a title, a cell(row) that returns a node or text, and optionally a
// value(row) to sort by, and a kind: number, text, key or time. A long table has
// pages, and a search in its first column.
export function table(caption, columns, rows, classOf = () => undefined) {
  const body = element("tbody");
  const show = (some) => body.replaceChildren(...some.map((row) =>
    element("tr", { class: classOf(row) }, ...columns.map((c) => element("td", { class: c.kind }, c.cell(row))))));
  const { fill, bar } = rows.length > pageRows ? pages(columns[0], show) : { fill: show };
  const headings = columns.map((column) => {
    const heading = element("th", { scope: "col", class: column.kind }, column.value ? undefined : column.title);
    if (column.value) {
      heading.append(element("button", { type: "button", onclick: () => sortBy(column, heading) }, column.title));
    }
    return heading;
  });
  const sortBy = (column, heading) => {
    const ascending = heading.getAttribute("aria-sort") !== "ascending";
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const direction = ascending ? 1 : -1;
    fill([...rows].sort((a, b) => direction * compare(column.value(a), column.value(b))));
  };
  fill(rows);
  return element("div", {}, bar, element("div", { class: "scroll" }, element("table", {},
    caption && element("caption", {}, caption), element("thead", {}, element("tr", {}, ...headings)), body)));
}

// pages returns fill(rows), which lets show one page of rows at a time, and the bar
// that chooses the page and searches in a column.
function pages({ title, cell, value = cell }, show) {
  let rows, found, first;
  const place = element("span", { role: "status" });
  const turn = (to) => {
    first = to;
    const limit = Math.min(found.length, first + pageRows);
    back.disabled = first === 0;
    next.disabled = limit === found.length;
    place.textContent = found.length ? `${count(first + 1)}–${count(limit)} of ${count(found.length)}` : "Nothing found.";
    show(found.slice(first, limit));
  };
  const back = element("button", { type: "button", onclick: () => turn(first - pageRows) }, "Previous");
  const next = element("button", { type: "button", onclick: () => turn(first + pageRows) }, "Next");
  const search = element("input", { type: "search", spellcheck: "false", oninput: () => fill(rows) });
  const fill = (all) => {
    rows = all;
    found = matching(rows, (row) => String(value(row)), search.value.trim());
    turn(0);
  };
  const bar = element("div", { class: "pages", role: "group", "aria-label": "Pages" },
    element("label", {}, `Find in ${title} `, search), back, next, place);
  return { fill, bar };
}

// matching returns the rows whose text has a part, those first whose text, or metric name, it is.
function matching(rows, textOf, part) {
  if (part === "") {
    return rows;
  }
  const small = part.toLowerCase();
  const isExact = (row) => [textOf(row), textOf(row).split("{")[0]].includes(part);
  const found = rows.filter((row) => textOf(row).toLowerCase().includes(small));
  return [...found.filter(isExact), ...found.filter((row) => !isExact(row))];
}

// compare orders numbers as such, NaN last, and texts with numbers in them as
// people would.
function compare(a, b) {
  if (typeof a !== "number") {
    return a.localeCompare(b, undefined, { numeric: true });
  }
  return Number.isNaN(a) - Number.isNaN(b) || a - b;
}

// tiles shows facts large: pairs of a title and a value.
export function tiles(...pairs) {
  return element("dl", { class: "tiles" }, ...pairs.map(([title, value]) =>
    element("div", {}, element("dt", {}, title), element("dd", {}, value))));
}

// message shows a warning or an error.
export function message(kind, text) {
  return element("p", { class: `message ${kind}`, role: kind === "error" ? "alert" : "status" }, text);
}
