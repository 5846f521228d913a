// The expressions of the page: what is typed, and which of them are shown. In the URL each is a parameter
// expr, and hide names those that are not shown, as numbers from 0 with commas between.

import { element } from "../common/dom.js";

// fill writes the expressions of a state into the form. Boxes that are there stay: one may have the focus.
export function fill(form, { expr }) {
  const list = form.querySelector(".expressions");
  const wanted = expr.length ? expr : [""];
  while (list.children.length > wanted.length) {
    list.lastChild.remove();
  }
  wanted.forEach((text, i) => {
    if (i === list.children.length) {
      list.append(row());
    }
    list.children[i].querySelector("textarea").value = text;
  });
}

// read returns the state that the form says.
export function read(form) {
  const all = [...form.querySelectorAll(".expressions textarea")];
  return { expr: all.map((box) => box.value.trim()).filter((text) => text !== ""), hide: "" };
}

// shown returns the expressions of a state that are to be shown.
export function shown({ expr, hide }) {
  const hidden = hide.split(",");
  return expr.filter((_, i) => !hidden.includes(String(i)));
}

function row() {
  const box = element("textarea", { rows: 2, spellcheck: "false", autocomplete: "off", autocapitalize: "off", "data-focus": true,
    placeholder: "rate(adapter_write_samples_total[5m])", onkeydown: (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        box.form.requestSubmit();
      }
    } });
  return element("label", { class: "wide" }, "PromQL expression ", box);
}
