// The control of time: buttons that move the range, and one that says it and opens a panel to choose another.

import { element } from "../common/dom.js";
import { instant, inUTC, time, zone } from "../common/format.js";
import { formatDuration } from "../common/quantities.js";
import * as times from "./timeranges.js";

// now returns the time in whole seconds.
const now = () => Math.ceil(Date.now() / 1000);

// fill writes the range of a state into the form: its hidden fields are range and end.
export function fill(form, state) {
  const place = form.querySelector(".when");
  if (place.children.length === 0) {
    place.append(...controls(form));
  }
  const isGraph = state.view !== "table";
  place.querySelector(".when-words").textContent = times.words(state);
  for (const part of place.querySelectorAll("[data-graph]")) {
    part.hidden = !isGraph;
  }
  place.querySelector(".when-later").disabled = state.end === "";
  place.querySelector(".when-to").firstChild.textContent = isGraph ? "To " : "Time ";
}

function controls(form) {
  const { range, end } = form.elements;
  const go = (state) => {
    range.value = state.range;
    end.value = state.end;
    form.requestSubmit();
  };
  const move = (by, factor) => () => go(times.moved({ range: range.value, end: end.value }, by, factor, now()));
  const button = (sign, title, className, onclick, attributes = {}) => element("button", { type: "button", class: className, "aria-label": title, title, onclick, ...attributes }, sign);
  const panel = panelOf(form, go);
  const open = element("button", { type: "button", class: "when-open", "aria-haspopup": "dialog", title: "Choose the time" }, element("span", { class: "when-words" }));
  open.popoverTargetElement = panel; // the browser opens and closes it, and gives the focus back
  panel.addEventListener("beforetoggle", ({ newState }) => {
    if (newState === "open") {
      panel.fill();
      put(panel, open);
    }
  });
  return [
    button("‹", "Earlier, by half the range", "when-earlier", move(-0.5, 1)), open, button("›", "Later, by half the range", "when-later", move(0.5, 1)),
    button("−", "Zoom out, to twice the range", "when-out", move(0, 2), { "data-graph": true }),
    button("+", "Zoom in, to half the range", "when-in", move(0, 0.5), { "data-graph": true }), panel];
}

// put places the panel under the button, within the page.
function put(panel, button) {
  const { left, bottom } = button.getBoundingClientRect();
  const page = document.documentElement.clientWidth, margin = 8;
  const width = Math.min(panel.querySelector(".when-quick").hidden ? 300 : 700, page - 2 * margin);
  Object.assign(panel.style, { width: `${width}px`, left: `${scrollX + Math.max(margin, Math.min(left, page - width - margin))}px`, top: `${scrollY + bottom + 4}px` });
}

// panelOf returns the panel, with fill(), which writes what is chosen into its fields.
function panelOf(form, go) {
  const { range, end } = form.elements, tab = form.closest("section").id;
  const field = (title, className, attributes = {}) => {
    const input = element("input", { spellcheck: "false", autocomplete: "off", placeholder: "2026-11-20 10:00 or now-1h", "aria-describedby": `when-error-${tab}`, autofocus: true,
      onfocus: () => input.select() });
    return [input, element("label", { class: `when-field ${className}`, ...attributes }, `${title} `, input)];
  };
  const [from, fromLabel] = field("From", "when-from", { "data-graph": true });
  const [to, toLabel] = field("To", "when-to");
  const problem = element("p", { class: "when-problem", id: `when-error-${tab}`, role: "alert" });
  const shownZone = element("strong", {});
  const other = element("button", { type: "button", onclick: () => {
    const select = document.getElementById("times");
    select.value = inUTC() ? "" : "UTC";
    select.dispatchEvent(new Event("change"));
    panel.fill();
  } });
  const done = (state) => {
    panel.hidePopover();
    go(state);
  };
  const apply = () => {
    const isGraph = !fromLabel.hidden;
    const isNow = /^\s*(now)?\s*$/i.test(to.value);
    const at = now();
    const last = isNow ? at : read(to, at);
    const first = isGraph ? read(from, at) : last - range.value;
    const wrong = [[from, first], [to, last]].find(([, t]) => Number.isNaN(t))?.[0];
    for (const input of [from, to]) {
      input.setAttribute("aria-invalid", String(input === wrong));
    }
    if (wrong || first >= last) {
      problem.textContent = wrong ? `Invalid time${wrong.value && `: ${wrong.value}`}. Use 2026-11-20 10:00, 2026-11-20, now-1h or now.` : "From must be before To.";
      (wrong ?? from).focus();
      return;
    }
    const chosen = times.between(first, last);
    done({ range: isGraph ? chosen.range : range.value, end: isNow ? "" : chosen.end });
  };
  const ranges = element("div", { class: "when-quick", role: "group", "aria-label": "Quick ranges", "data-graph": true });
  const panel = element("div", { class: "when-panel", popover: "auto", role: "dialog", "aria-label": "Time", onkeydown: (event) => {
    if (event.key === "Enter" && event.target.matches("input")) {
      event.preventDefault(); // it is not the form that is sent
      apply();
    }
  } },
  element("div", { class: "when-fields" }, fromLabel, toLabel, problem,
    element("div", { class: "when-row" }, element("button", { type: "button", class: "when-apply", onclick: apply }, "Apply"),
      element("button", { type: "button", onclick: () => done({ range: range.value, end: "" }) }, "End now")),
    element("p", { class: "when-zone" }, "Times are in ", shownZone, ". ", other)),
  ranges);
  panel.fill = () => {
    const last = end.value ? instant(end.value) : NaN;
    write(from, end.value ? last - range.value : `now-${formatDuration(range.value)}`);
    write(to, end.value ? last : "now");
    problem.textContent = "";
    shownZone.textContent = zone();
    other.textContent = inUTC() ? "Show local times" : "Show UTC";
    const choice = (title, state, isChosen) => element("button", { type: "button", "aria-pressed": String(isChosen), onclick: () => done(state) }, title);
    ranges.replaceChildren(
      ...times.quick.map(([size, title]) => choice(`Last ${title}`, { range: String(size), end: "" }, !end.value && Number(range.value) === size)),
      ...times.days(now()).map(([title, state]) => choice(title, state, end.value !== "" && end.value === state.end && range.value === state.range)));
  };
  return panel;
}

// write puts a time in seconds, or text, into a field.
function write(input, at) {
  const isText = typeof at === "string";
  input.value = isText ? at : Number.isNaN(at) ? "" : time(at);
  input.setAttribute("aria-invalid", "false");
  Object.assign(input.dataset, { filled: input.value, seconds: isText ? "" : String(at) });
}

// read returns the time of a field in seconds. One that is as it was filled stays so: an hour in autumn has two instants.
function read(input, at) {
  const { filled, seconds } = input.dataset;
  return input.value === filled && seconds !== "" ? Number(seconds) : times.parse(input.value, at);
}
