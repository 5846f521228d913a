// Tabs and the state of the page, which is in the URL: a link to the page shows
// the same again, and the back button goes back.

import "./common/templates.js";
import { answers, ask, Unreachable } from "./common/api.js";
import { element, message } from "./common/dom.js";
import { instant, inUTC, utc } from "./common/format.js";
import * as keys from "./common/keys.js";
import { announce } from "./common/announce.js";
import { showRunning } from "./common/running.js";
import * as tenant from "./common/tenant.js";
import * as picker from "./query/timepicker.js";
import * as query from "./query/query.js";
import * as boards from "./boards/boards.js";
import * as explore from "./tabs/explore.js";
import * as latest from "./tabs/latest.js";
import * as cardinality from "./tabs/cardinality.js";
import * as explain from "./tabs/explain.js";
import * as rules from "./tabs/rules.js";
import * as status from "./tabs/status.js";

// A tab has show(state, result, signal, navigate): it fills result with what
// state asks for, until signal is aborted, and may return a sentence about it for screen
// readers; without one they say the facts of the result. navigate(changes) goes to a changed state; with { again: false } only the URL changes,
// as the tab shows it already. Its state is that of the fields of its
// form, by name. Where these are not all, it has fill(form, state), which writes the
// rest of a state into the form, and read(form), which returns that rest; a list
// there is a parameter that the URL has several times.
const tabs = { query, boards, explore, latest, cardinality, explain, rules, status };
const front = "query";

let running = new AbortController();

// current returns the tab and its state as the URL says them.
function current() {
  const parameters = new URLSearchParams(location.search);
  const tab = parameters.get("tab");
  return { tab: Object.hasOwn(tabs, tab) ? tab : front, parameters };
}

// navigate changes the state of a tab and shows it, or has been told that it is shown.
function navigate(tab, state, { again = true } = {}) {
  const parameters = new URLSearchParams({ tab });
  for (const [name, values] of Object.entries(state)) {
    for (const value of [values].flat().filter((value) => value !== "")) {
      parameters.append(name, value);
    }
  }
  const search = `?${parameters}`;
  if (again) {
    if (search !== location.search) {
      history.pushState(null, "", search);
    }
    return show();
  }
  history.replaceState(null, "", search);
  document.querySelector(`#${tab} form`).dataset.search = search; // what is typed there stays
  document.querySelector(`nav a[data-tab=${tab}]`).setAttribute("href", search);
}

// fill writes the state of a tab into its form.
function fill(tab, form, state) {
  form.reset();
  tabs[tab].fill?.(form, state);
  if (form.querySelector(".when")) {
    picker.fill(form, state);
  }
  for (const [name, value] of Object.entries(state)) {
    const field = form.elements.namedItem(name);
    if (!field || Array.isArray(value)) {
      continue; // the tab has filled it
    }
    field.value = value;
    if (field instanceof HTMLSelectElement && field.value !== value) {
      field.append(element("option", { value }, value)); // of a link
      field.value = value;
    }
  }
}

// read returns the state of a tab that its form says.
function read(tab, form) {
  return { ...Object.fromEntries(new FormData(form)), ...tabs[tab].read?.(form) };
}

// firsts are the states of the forms before they are filled, by tab.
const firsts = {};

// stateOf returns the state of a tab that the URL says. What it does not say is as
// in a form before it is filled.
function stateOf(tab, parameters) {
  const state = { ...firsts[tab] };
  for (const name of Object.keys(state)) {
    if (parameters.has(name)) {
      state[name] = Array.isArray(state[name]) ? parameters.getAll(name).filter((value) => value !== "") : parameters.get(name);
    }
  }
  return state;
}

async function show() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const { tab, parameters } = current();
  const state = stateOf(tab, parameters);
  if (/T[\d:.]+$/.test(state.end) && !Number.isNaN(instant(state.end))) { // a link of before, without a zone
    state.end = utc(instant(state.end));
    parameters.set("end", state.end);
    history.replaceState(null, "", `?${parameters}`);
  }
  for (const link of document.querySelectorAll("nav a")) {
    link.toggleAttribute("aria-current", false);
    if (link.dataset.tab === tab) {
      link.setAttribute("aria-current", "page");
      link.setAttribute("href", location.search || `?tab=${tab}`); // its state, to come back to
      link.parentElement.scrollLeft = link.offsetLeft - (link.parentElement.clientWidth - link.offsetWidth) / 2;
    }
  }
  for (const name of Object.keys(tabs)) {
    document.getElementById(name).hidden = name !== tab;
  }
  const section = document.getElementById(tab);
  const form = section.querySelector("form");
  if (form && form.dataset.search !== location.search) {
    form.dataset.search = location.search;
    fill(tab, form, state);
  }
  document.title = `${section.getAttribute("aria-label")} · promtable`;
  const result = section.querySelector(".result");
  result.setAttribute("aria-busy", "true");
  section.querySelector(".cancelled")?.remove();
  const own = running;
  const ended = showRunning(() => {
    own.abort(); // the adapter ends a query whose client has gone
    result.setAttribute("aria-busy", "false");
    result.before(element("p", { class: "message warning cancelled" }, `Cancelled.${result.hasChildNodes() ? " What is shown is from before." : ""}`));
  });
  try {
    const sentence = await tabs[tab].show(state, result, signal, (changes, how) => navigate(tab, Object.assign(state, changes), how));
    if (!signal.aborted) {
      announce(sentence ?? result.querySelector(".facts")?.textContent ?? "");
    }
  } catch (err) {
    if (!signal.aborted) {
      result.replaceChildren(message("error", err.message));
      if (err instanceof Unreachable) {
        answers(signal).then(() => signal.aborted || show());
      }
    }
  } finally {
    ended();
    if (!signal.aborted) {
      result.setAttribute("aria-busy", "false");
    }
  }
}

// focusResult puts the focus where a link has led within a tab, if the link is gone.
function focusResult() {
  if (document.activeElement === document.body) {
    document.querySelector("main section:not([hidden]) .result").focus();
  }
}

function focusFirst() {
  document.querySelector("main section:not([hidden]) [data-focus]")?.focus();
}

for (const form of document.querySelectorAll("form")) {
  const tab = form.closest("section").id;
  form.reset(); // browsers fill it again after a reload
  firsts[tab] = read(tab, form);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(tab, read(tab, form));
  });
  // A time changes with each digit of it; it is asked for by Enter.
  form.addEventListener("change", (event) => {
    if (event.target.matches("select, input[type=radio]")) {
      form.requestSubmit();
    }
  });
}

// Links within the page do not load it again.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="?"]');
  if (link && event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    const before = current().tab;
    history.pushState(null, "", link.getAttribute("href"));
    show().then(() => (current().tab === before ? focusResult() : focusFirst()));
  }
});

// shift moves the times of the tab by seconds. An end that is nearly now is now, which moves on.
function shift(seconds) {
  const { tab, parameters } = current();
  const { end } = stateOf(tab, parameters);
  const now = Date.now() / 1000;
  const to = Math.round((instant(end || now) || now) + seconds);
  parameters.set("tab", tab);
  parameters.delete("end");
  if (to < now - Math.abs(seconds) / 10) {
    parameters.set("end", utc(to));
  }
  history.pushState(null, "", `?${parameters}`);
  show();
}

keys.listen({ focusFirst, again: show, shift });

// What there is no room for on a telephone is folded away.
for (const button of document.querySelectorAll("#settings, .fold")) {
  button.addEventListener("click", () => button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") !== "true"));
}

// The controls of a query stay as they were left.
const fold = document.querySelector(".fold");
fold.setAttribute("aria-expanded", localStorage.getItem("controls") === "open");
fold.addEventListener("click", () => localStorage.setItem("controls", fold.getAttribute("aria-expanded") === "true" ? "open" : ""));

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme ?? "";
theme.addEventListener("change", () => {
  if (theme.value) {
    document.documentElement.dataset.theme = theme.value;
    localStorage.setItem("theme", theme.value);
  } else {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  }
  show(); // graphs are drawn in the colours of the scheme
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);

const times = document.getElementById("times");
times.value = inUTC() ? "UTC" : "";
times.addEventListener("change", () => {
  if (times.value) {
    localStorage.setItem("zone", times.value);
  } else {
    localStorage.removeItem("zone");
  }
  document.querySelectorAll("form:has(.when)").forEach((form) => { delete form.dataset.search; }); // their times are in words
  show();
});

tenant.listen(async () => (await ask("status/tenants")).data, show);
addEventListener("popstate", show);
show().then(focusFirst);
