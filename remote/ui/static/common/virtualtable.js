// A table of very many rows, of which only those in sight are elements.
//
// Pages would be simpler, but a reader of a list scrolls, and a page ends in the middle of a metric. All rows have one
// height, so that a place in the list is a place in the scrolled area. Screen readers are told how many rows there are, and which one each is.

import { element } from "./dom.js";
import { count } from "./format.js";
import { haveSameTitles, linesOf, matching, sorted, tools, updatable } from "./rows.js";

// maxLines is how many lines of text a row has at most, and letter about how wide one is in pixels: words that do not fit leave room.
const maxLines = 8, letter = 8;

// ahead is how many rows are made above and below those in sight: the Tab key comes to them, and scrolls.
const ahead = 12;

// virtualTable makes one, with columns as those of table, whose first one can be searched, and with what was chosen in the table before.
export function virtualTable(label, columns, rows, chosen = {}) {
  let texts, longest, order, found;
  let ordered = (all) => all; // by the last sort
  let height = 0; // of a row, in pixels
  let sort;

  const above = element("td", { colspan: columns.length }), below = element("td", { colspan: columns.length });
  const body = element("tbody");
  const table = element("table", {}, element("caption", { class: "unseen" }, label),
    element("thead", {}, element("tr", { "aria-rowindex": 1 }, ...columns.map(heading))),
    element("tbody", { "aria-hidden": true, class: "pad" }, element("tr", {}, above)), body,
    element("tbody", { "aria-hidden": true, class: "pad" }, element("tr", {}, below)));
  const scroller = element("div", { class: "rows", tabindex: 0, role: "region", "aria-label": `${label}: scroll with the arrow keys`,
    onscroll: () => draw(), onfocusin: () => draw(), onkeydown: (event) => event.target === scroller && jump(event) }, table);
  const place = element("span", { role: "status" });
  const search = element("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => find() });
  search.value = chosen.search ?? "";

  function heading(column, i) {
    const made = element("th", { scope: "col", class: column.kind });
    made.append(element("button", { type: "button", onclick: () => {
      const ascending = made.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      sortBy(made, i, ascending);
      read();
      find();
    } }, column.title));
    if (column.title === chosen.sort?.title) {
      sortBy(made, i, chosen.sort.ascending);
    }
    return made;
  }

  function sortBy(heading, i, ascending) {
    sort = { title: columns[i].title, ascending };
    heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    ordered = (all) => sorted(all, (row) => columns[i].value(rows[row]), ascending);
  }

  function read() {
    texts = rows.map((row) => String(columns[0].value(row)));
    longest = texts.reduce((most, text) => Math.max(most, text.length), 1);
    order = ordered([...rows.keys()]);
  }

  function written() {
    const { titles, of } = linesOf(columns);
    return [titles, ...found.flatMap((i) => of(rows[i]))];
  }

  function choose() {
    found = matching(order, (i) => texts[i], search.value.trim());
    place.textContent = found.length === rows.length ? `${count(rows.length)} rows` : `${count(found.length)} of ${count(rows.length)} rows`;
    table.setAttribute("aria-rowcount", found.length + 1);
  }

  function find() {
    choose();
    keepFocus();
    body.replaceChildren();
    scroller.scrollTop = 0;
    draw();
  }

  // keepFocus lets the list have the focus in place of a row of it that goes.
  function keepFocus(row = body) {
    if (row.contains(document.activeElement)) {
      scroller.focus({ preventScroll: true });
    }
  }

  // jump goes to an end of the list at once: browsers would glide through all of it.
  function jump(event) {
    const to = { Home: 0, End: scroller.scrollHeight }[event.key];
    if (to !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      scroller.scrollTo({ top: to, behavior: "instant" });
    }
  }

  function draw() {
    if (!height && found.length > 0) { // the first row, to be measured
      body.replaceChildren(made(0));
      const room = Math.max(1, Math.floor((table.querySelector("th").clientWidth - 16) / letter));
      table.style.setProperty("--lines", longest <= room ? 1 : Math.min(maxLines, Math.ceil(longest / room)));
      height = body.firstChild.getBoundingClientRect().height;
    }
    const first = Math.max(0, Math.floor(scroller.scrollTop / (height || 1)) - ahead);
    const limit = Math.min(found.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / (height || 1)) + ahead);
    const have = new Map([...body.children].map((row) => [Number(row.getAttribute("aria-rowindex")) - 2, row]));
    for (const [i, row] of have) {
      if (i < first || i >= limit) {
        keepFocus(row);
        row.remove();
        have.delete(i);
      }
    }
    let next = body.firstChild;
    for (let i = first; i < limit; i++) {
      if (have.has(i)) {
        next = have.get(i).nextSibling;
      } else {
        body.insertBefore(made(i), next);
      }
    }
    above.style.height = `${first * height}px`;
    below.style.height = `${(found.length - limit) * height}px`;
  }

  function made(i) {
    const row = rows[found[i]];
    return element("tr", { "aria-rowindex": i + 2 }, ...columns.map((c) => element("td", { class: c.kind }, element("div", {}, c.cell(row)))));
  }

  const node = element("div", { class: "virtual" },
    element("div", { class: "pages", role: "group", "aria-label": `Find in ${label}` }, element("label", {}, `Find in ${columns[0].title} `, search), place, tools(undefined, written)),
    scroller);
  const resized = new ResizeObserver(() => { // other widths have other heights of rows
    if (node.isConnected) {
      const at = height ? scroller.scrollTop / height : 0;
      height = 0;
      keepFocus();
      body.replaceChildren();
      draw();
      scroller.scrollTop = at * height;
    }
  });
  resized.observe(scroller);
  read();
  find();
  return updatable(node, (newColumns, newRows) => {
    if (!haveSameTitles(columns, newColumns) || newRows.length === 0) {
      return false;
    }
    const textOf = (row) => texts[found[Number(row.getAttribute("aria-rowindex")) - 2]];
    const focused = body.contains(document.activeElement) ? textOf(document.activeElement.closest("tr")) : undefined;
    const at = scroller.scrollTop;
    keepFocus();
    [columns, rows] = [newColumns, newRows];
    read();
    choose();
    height = 0;
    body.replaceChildren();
    draw();
    scroller.scrollTop = at; // without rows there was less to scroll
    draw();
    if (focused !== undefined) {
      [...body.children].find((row) => textOf(row) === focused)?.querySelector("a")?.focus({ preventScroll: true });
    }
    return true;
  }, () => ({ sort, search: search.value }));
}
