// Tables: sorted by a heading, in pages, searched, copied and saved.

import { element, folded } from "./dom.js";
import { count } from "./format.js";
import { haveSameTitles, linesOf, matching, sorted, tools, updatable } from "./rows.js";

// pageRows is how many rows of a table are shown at once.
const pageRows = 200;

// table makes a table whose rows can be sorted by a click on a heading, and be taken along as text. A column has a
// title, a cell(row) that returns a node or text, and optionally a value(row) to sort by, a text(row) to copy, which is
// the value if there is none, or false if it is not copied, and a kind: number, text, key or time. A long table has
// pages, and a search. The options are find, a column to search in instead of the first; controls, nodes that stand
// beside the buttons; lines, with titles and of(row), which says in which lines of text a row is copied; and chosen, what
// was chosen in the table before.
export function table(caption, columns, rows, classOf = () => undefined, { find = columns[0], controls = [], lines, chosen = {} } = {}) {
  const body = element("tbody");
  const keyOf = (row) => find.value?.(row);
  let keys = []; // of the rows in sight
  const show = (some, isUpdate = false) => {
    const before = new Map(isUpdate ? keys.map((key, i) => [key, body.rows[i]]) : []);
    const focused = document.activeElement;
    keys = some.map(keyOf);
    body.replaceChildren(...some.map((row, i) => {
      const made = element("tr", { class: classOf(row) }, ...columns.map((c) => element("td", { class: c.kind }, folded(c.cell(row)))));
      const old = before.get(keys[i]);
      before.delete(keys[i]);
      return old ? renewed(old, made) : made;
    }));
    if (focused.isConnected && document.activeElement !== focused) {
      focused.focus({ preventScroll: true });
    }
  };
  const isLong = rows.length > pageRows;
  const { fill, found, searched, bar } = isLong ? pages(find, show, chosen.search) : whole(show, chosen.search);
  const headings = columns.map((column, i) => {
    const heading = element("th", { scope: "col", class: column.kind }, column.value ? undefined : column.title);
    if (column.value) {
      heading.append(element("button", { type: "button", onclick: () => sortBy(i) }, column.title));
    }
    return heading;
  });
  let ordered = (some) => some, sort;
  const sortBy = (i, ascending = headings[i].getAttribute("aria-sort") !== "ascending") => {
    sort = { title: columns[i].title, ascending };
    headings.forEach((other) => other.removeAttribute("aria-sort"));
    headings[i].setAttribute("aria-sort", ascending ? "ascending" : "descending");
    ordered = (some) => sorted(some, columns[i].value, ascending);
    fill(ordered(rows));
  };
  const sortedBy = columns.findIndex(({ title, value }) => value && title === chosen.sort?.title);
  sortedBy < 0 ? fill(rows) : sortBy(sortedBy, chosen.sort.ascending);
  const written = () => {
    const { titles, of } = lines ?? linesOf(columns);
    return [titles, ...found().flatMap(of)];
  };
  const node = element("div", { class: "table" },
    element("div", { class: isLong ? "table-bar long" : "table-bar" }, ...bar, ...controls, tools(caption, written)),
    element("div", { class: "scroll" }, element("table", {},
      caption && element("caption", {}, caption), element("thead", {}, element("tr", {}, ...headings)), body)));
  return updatable(node, (newColumns, newRows) => {
    if (!haveSameTitles(columns, newColumns) || newRows.length > pageRows !== isLong) {
      return false;
    }
    [columns, rows] = [newColumns, newRows];
    fill(ordered(rows), true);
    return true;
  }, () => ({ sort, search: searched() }));
}

// renewed returns a row with what a newer one says. Cells that say the same stay, and what is unfolded in the others.
function renewed(row, newer) {
  row.className = newer.className;
  [...newer.cells].forEach((cell, i) => {
    const old = row.cells[i];
    if (old.textContent === cell.textContent) {
      return;
    }
    const had = old.contains(document.activeElement);
    const unfolded = [...old.querySelectorAll("details")].map(({ open }) => open);
    old.replaceChildren(...cell.childNodes);
    old.querySelectorAll("details").forEach((folded, j) => { folded.open = unfolded[j] ?? false; });
    if (had) {
      old.querySelector("summary, a, button")?.focus({ preventScroll: true });
    }
  });
  return row;
}

// whole shows all rows. A search is kept for a table that is long again.
function whole(show, search) {
  let all = [];
  const fill = (rows, isUpdate) => {
    all = rows;
    show(rows, isUpdate);
  };
  return { fill, found: () => all, searched: () => search, bar: [] };
}

// pages returns fill(rows), which lets show one page of rows at a time, found(), the rows of all pages, searched(), the text of the
// search, and the nodes of the bar that chooses the page and searches in a column.
function pages({ title, cell, value = cell }, show, searched = "") {
  let all, found, first;
  const texts = new Map(); // of rows, made by the first search
  const textOf = (row) => texts.get(row) ?? texts.set(row, String(value(row))).get(row);
  const place = element("span", { role: "status" });
  const turn = (to, isUpdate) => {
    first = to;
    const limit = Math.min(found.length, first + pageRows);
    back.disabled = first === 0;
    next.disabled = limit === found.length;
    place.textContent = found.length ? `${count(first + 1)}–${count(limit)} of ${count(found.length)}` : "Nothing found.";
    show(found.slice(first, limit), isUpdate);
  };
  const back = element("button", { type: "button", onclick: () => turn(first - pageRows) }, "Previous");
  const next = element("button", { type: "button", onclick: () => turn(first + pageRows) }, "Next");
  const search = element("input", { type: "search", spellcheck: "false", oninput: () => fill(all) });
  search.value = searched;
  const fill = (some, isUpdate) => {
    if (isUpdate) {
      texts.clear();
    }
    all = some;
    found = matching(all, textOf, search.value.trim());
    turn(isUpdate && first < found.length ? first : 0, isUpdate);
  };
  const bar = [element("div", { class: "pages", role: "group", "aria-label": "Pages" },
    element("label", {}, `Find in ${title} `, search), back, next, place)];
  return { fill, found: () => found, searched: () => search.value, bar };
}
