// Elements, and what is made of them everywhere.

export { table } from "./table.js";

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

// tiles shows facts large: pairs of a title and a value.
export function tiles(...pairs) {
  return element("dl", { class: "tiles" }, ...pairs.map(([title, value]) =>
    element("div", {}, element("dt", {}, title), element("dd", {}, value))));
}

// selecting says whether text in a node is marked, to be copied.
export function selecting(node) {
  const selection = getSelection();
  return !selection.isCollapsed && node.contains(selection.anchorNode);
}

// message shows a warning or an error.
export function message(kind, text) {
  return element("p", { class: `message ${kind}`, role: kind === "error" ? "alert" : "status" }, text);
}
