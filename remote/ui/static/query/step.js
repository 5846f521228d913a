// The step of a graph: one of a list, or typed.

import { element } from "../common/dom.js";
import { parseDuration } from "../common/quantities.js";

// own is what the list calls a step that is typed.
const own = "own";

// fill lets the form ask for a step of one's own.
export function fill(form) {
  const { step } = form.elements;
  const place = form.querySelector(".step-own");
  place.hidden = true;
  if (place.children.length > 0) {
    return;
  }
  const problem = element("span", { class: "when-problem", role: "alert" });
  const close = () => {
    place.hidden = true;
    step.value = step.dataset.before;
  };
  const field = element("input", { size: 5, placeholder: "90s", spellcheck: "false", autocomplete: "off", onkeydown: (event) => {
    if (event.key === "Escape") {
      event.preventDefault(); // the form is not left
      close();
      step.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      form.requestSubmit();
    }
  } });
  form.addEventListener("submit", (event) => { // before the form is read
    if (!place.hidden) {
      const text = field.value.trim();
      if (text === "") {
        close();
        return;
      }
      if (!(parseDuration(text) > 0)) {
        problem.textContent = "Use a duration such as 15s, 5m or 1h.";
        event.preventDefault();
        event.stopImmediatePropagation();
        return;
      }
      place.hidden = true;
      step.append(element("option", { value: text }, text));
      step.value = text;
    }
  }, { capture: true });
  place.append(element("label", {}, "Step of ", field), problem);
  step.addEventListener("focus", () => { step.dataset.before = step.value === own ? "" : step.value; });
  step.addEventListener("change", (event) => {
    if (step.value === own) {
      event.stopPropagation(); // nothing is asked for yet
      place.hidden = false;
      problem.textContent = "";
      field.value = "";
      field.focus();
    }
  });
}
