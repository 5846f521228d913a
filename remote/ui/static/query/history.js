// The expressions that were run, newest first, in this browser.

import { element } from "../common/dom.js";

const key = "expressions";
const most = 100;

// list returns them.
export function list() {
  try {
    const all = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(all) ? all.filter((expr) => typeof expr === "string") : [];
  } catch {
    return [];
  }
}

// add puts expressions in front.
export function add(exprs) {
  const before = list();
  const all = [...new Set([...exprs, ...before])].slice(0, most);
  if (all.some((expr, i) => expr !== before[i])) {
    store(all);
  }
}

function store(all) {
  try {
    localStorage.setItem(key, JSON.stringify(all));
  } catch { } // it is full, or not allowed
}

// choose opens the list, and calls onChoose with the expression that is chosen.
export function choose(onChoose) {
  const search = element("input", { type: "search", spellcheck: "false", autocomplete: "off", oninput: () => fill() });
  const found = element("ul", {});
  const said = element("p", { class: "hint", role: "status" });
  const clear = element("button", { type: "button", onclick: () => {
    store([]);
    fill();
    search.focus();
  } }, "Clear");
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const take = (expr) => {
    dialog.close();
    onChoose(expr);
  };
  const fill = () => {
    const all = list();
    const words = search.value.toLowerCase().split(/\s+/);
    const some = all.filter((expr) => words.every((word) => expr.toLowerCase().includes(word)));
    found.replaceChildren(...some.map((expr) => element("li", {}, element("button", { type: "button", onclick: () => take(expr) }, expr))));
    said.textContent = all.length === 0 ? "No queries yet." : some.length === 0 ? "No matches." : "";
    clear.disabled = all.length === 0;
  };
  // The arrows move through the list, and Enter in the search takes the first.
  const keydown = (event) => {
    const buttons = [...found.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const to = at + (event.key === "ArrowDown" ? 1 : -1);
      (to < 0 ? search : buttons[Math.min(to, buttons.length - 1)])?.focus();
    } else if (event.key === "Enter" && document.activeElement === search) {
      event.preventDefault();
      buttons[0]?.click();
    }
  };
  const dialog = element("dialog", { class: "past", "aria-label": "Query history", onkeydown: keydown, onclose: () => dialog.remove() },
    element("div", { class: "bar" }, element("label", {}, "Find ", search), clear, close), said, found);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // beside it
  document.body.append(dialog);
  fill();
  dialog.showModal();
  search.focus();
}
