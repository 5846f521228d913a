// Elements and tables.

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

// table makes a table whose rows can be sorted by a click on a heading. A column
// has a title, a cell(row) that returns a node or text, and optionally a
// value(row) to sort by, and a kind: number, text, key or time.
export function table(caption, columns, rows, classOf = () => undefined) {
  const body = element("tbody");
  const fill = (sorted) => body.replaceChildren(...sorted.map((row) =>
    element("tr", { class: classOf(row) }, ...columns.map((c) => element("td", { class: c.kind }, c.cell(row))))));
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
  return element("div", { class: "scroll" }, element("table", {},
    caption && element("caption", {}, caption), element("thead", {}, element("tr", {}, ...headings)), body));
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
