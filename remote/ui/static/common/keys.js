// The keys of the page, and the dialog that lists them.

import { element } from "./dom.js";

// tabKeys are the second keys of g, by tab.
const tabKeys = { query: "q", boards: "b", explore: "e", latest: "l", cardinality: "c", explain: "x", rules: "r", status: "s" };

// keys are those of the page: how they are written, what they do, and which they are. The ones of tabs stand beside.
const keys = [
  { shown: ["/"], what: "Go to the first field", is: "/", run: ({ focusFirst }) => focusFirst() },
  { shown: ["Enter"], what: "Run the expression; Shift+Enter starts a new line" },
  { shown: ["Alt+↑"], what: "In the editor: previous query; Alt+↓ next query, Alt+H history" },
  { shown: ["Ctrl+Space"], what: "In the editor: suggestions; F8 next error" },
  { shown: ["Tab"], what: "Go to the graph; there ← → move between points, ↑ ↓ between lines" },
  { shown: ["Esc"], what: "Leave the field, to use the keys below" },
  { shown: ["r"], what: "Run again", is: "r", run: ({ again }) => again() },
  { shown: ["t"], what: "Switch between table and graph", is: "t", run: toggleView },
  { shown: ["[", "←"], what: "Half a range earlier", is: ["[", "ArrowLeft"], run: (page) => shift(page, -0.5) },
  { shown: ["]", "→"], what: "Half a range later", is: ["]", "ArrowRight"], run: (page) => shift(page, 0.5) },
  { shown: ["u"], what: "Switch between UTC and local time", is: "u", run: toggleUTC },
  { shown: ["?"], what: "This list", is: "?", run: showKeys },
];

// second is how long the key after g may take, in milliseconds.
const second = 2000;

// listen makes keys do what they do. page has focusFirst(), again(), which shows the tab again, and shift(seconds),
// which moves the times of the tab.
export function listen(page) {
  let went = -Infinity; // when g was pressed
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) {
      return;
    }
    if (event.key === "Escape" && isTyped(event.target) && !event.target.closest("[popover]")) {
      event.preventDefault(); // a search would be emptied
      document.getElementById("main").focus();
      return;
    }
    if (isTyped(event.target) || event.key.startsWith("Arrow") && event.target.closest("input, button, a, [tabindex]:not(main), summary")) {
      return;
    }
    const tab = event.timeStamp - went < second && Object.keys(tabKeys).find((name) => tabKeys[name] === event.key);
    went = event.key === "g" ? event.timeStamp : -Infinity;
    const key = keys.find(({ is }) => [is].flat().includes(event.key));
    if (tab) {
      event.preventDefault();
      document.querySelector(`nav a[data-tab="${tab}"]`)?.click();
    } else if (key) {
      event.preventDefault();
      key.run(page);
    }
  });
  document.getElementById("help").addEventListener("click", showKeys);
}

// isTyped says whether keys that are pressed there are typed, or choose.
function isTyped(target) {
  return target.isContentEditable || target.matches("textarea, select") ||
    (target.matches("input") && !["radio", "checkbox", "button"].includes(target.type));
}

function toggleView() {
  document.querySelector("main section:not([hidden]) input[name=view]:not(:checked)")?.click();
}

function toggleUTC() {
  const times = document.getElementById("times");
  times.value = times.value ? "" : "UTC";
  times.dispatchEvent(new Event("change"));
}

// shift moves the times of the tab by a part of their range.
function shift(page, part) {
  const range = document.querySelector("main section:not([hidden]) form [name=range]");
  if (range) {
    page.shift(part * Number(range.value));
  }
}

function showKeys() {
  const close = element("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close");
  const row = ([shown, what, between = "or"]) => element("div", {}, element("dt", {}, ...shown.flatMap((key, i) => [i > 0 ? ` ${between} ` : "", element("kbd", {}, key)])), element("dd", {}, what));
  const tabs = [...document.querySelectorAll("nav a")].filter((link) => tabKeys[link.dataset.tab])
    .map((link) => [["g", tabKeys[link.dataset.tab]], link.textContent.trim(), "then"]);
  const dialog = element("dialog", { class: "keys", "aria-labelledby": "keys-title", onclose: () => dialog.remove(),
    onclick: ({ target }) => target === dialog && dialog.close() },
  element("div", {}, element("h2", { id: "keys-title" }, "Keys"), close,
    element("dl", {}, ...keys.map(({ shown, what }) => row([shown, what])), ...tabs.map(row)),
    element("p", { class: "hint" }, "They work outside text fields.")));
  document.body.append(dialog);
  dialog.showModal();
}
