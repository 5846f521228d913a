// Elements, and what is made of them everywhere.

import { Unreachable } from "./api.js";
import { straight } from "./format.js";

// said are attributes that people read or hear.
const said = ["title", "aria-label"];

// element makes one: attributes by name, children that are nodes or text. What
// comes from the server goes in as text, never as HTML, and what would turn its direction as what it is.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) {
      made.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : said.includes(key) ? straight(String(value)) : value);
    }
  }
  made.append(...children.filter((child) => child !== undefined && child !== null).map((child) => (typeof child === "string" ? straight(child) : child)));
  return made;
}

// shape makes an element of SVG.
export function shape(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes).filter(([, value]) => value !== undefined)) {
    made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// tiles shows facts large: pairs of a title and a value.
export function tiles(...pairs) {
  return element("dl", { class: "tiles" }, ...pairs.map(([title, value]) =>
    element("div", {}, element("dt", {}, title), element("dd", {}, value))));
}

// longText is from how many characters on a text is folded, and foldedText how many of it are seen then.
const longText = 400, foldedText = 200;

// isLong says whether a text is too long to be shown whole beside others.
export function isLong(text) {
  return text.length > longText;
}

// folded returns a text that is long as its beginning, which unfolds; anything else as it is.
export function folded(text) {
  return typeof text !== "string" || !isLong(text) ? text
    : element("details", {}, element("summary", {}, `${text.slice(0, foldedText)}…`), element("div", {}, text));
}

// selecting says whether text in a node is marked, to be copied.
export function selecting(node) {
  const selection = getSelection();
  return !selection.isCollapsed && node.contains(selection.anchorNode);
}

// message shows a warning or an error.
export function message(kind, text) {
  return element("p", { class: `message ${kind}`, role: kind === "error" ? "alert" : "status" }, located(text));
}

// located returns an error, and if it is one in an expression it says where that is in words.
export function located(text) {
  return text.replace(/^(?:invalid parameter "query": )?(\d+):(\d+): parse error: /, "Line $1, column $2: ");
}

// orMessage returns the nodes that a part of a view comes to, or what went wrong with it: the other parts are of use without it. Only where no
// server answers it throws.
export async function orMessage(part, signal) {
  try {
    return await part ?? [];
  } catch (err) {
    if (signal.aborted || err instanceof Unreachable) {
      throw err;
    }
    return [message("error", err.message)];
  }
}
