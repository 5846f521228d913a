// What is shown up to now, and asked for again by itself.

import { element, message } from "../common/dom.js";
import { time } from "../common/format.js";
import { parseDuration } from "../common/quantities.js";

// The choices of how often.
const choices = [["", "Off"], ["5s", "5 s"], ["10s", "10 s"], ["30s", "30 s"], ["1m", "1 min"], ["5m", "5 min"]];

for (const select of document.querySelectorAll("select[name=refresh]")) {
  select.append(...choices.map(([value, text]) => element("option", { value }, text)));
}

// fill says in a form with an end of time that a refresh waits for one that is now. To choose a refresh is to choose that end.
export function fill(form, { refresh, end }) {
  const place = form.querySelector(".waits");
  const now = () => { form.elements.end.value = ""; };
  if (place.children.length === 0) {
    place.append("Refresh is paused: the range does not end now. ", element("button", { type: "button", onclick: () => {
      now();
      form.requestSubmit();
    } }, "End now"));
    form.elements.refresh.addEventListener("change", ({ target }) => target.value && now()); // before the form is sent
  }
  place.hidden = !(refresh && end);
}

// sentence says for screen readers how often a state is asked for again.
export function sentence({ refresh, end }) {
  return refresh ? end ? " Refresh is paused: the range does not end now." : ` It refreshes every ${refresh}.` : "";
}

// refresh calls again() every so often, as every says, a duration such as 5s, until signal is aborted: after the answer of the time before, not while
// the page is hidden, and not while busy(). Where it fails it says so in the node problems, and goes on.
export function refresh(every, again, busy, problems, signal) {
  const pause = parseDuration(every) * 1000;
  if (!(pause >= 1000)) {
    return;
  }
  let last = Date.now() / 1000, timer, isAsking = false;
  const wait = () => {
    timer = setTimeout(once, pause);
  };
  const once = async () => {
    if (document.hidden || busy()) {
      wait();
      return;
    }
    isAsking = true;
    try {
      await again();
      last = Date.now() / 1000;
      problems.replaceChildren();
    } catch (err) {
      if (!signal.aborted) {
        problems.replaceChildren(message("error", `${err.message} The results shown are from ${time(last)}. The page retries every ${every}.`));
      }
    }
    isAsking = false;
    if (!signal.aborted) {
      wait();
    }
  };
  const seen = () => { // what is old is asked for at once
    if (!document.hidden && !isAsking && Date.now() / 1000 - last > pause / 1000) {
      clearTimeout(timer);
      timer = setTimeout(once);
    }
  };
  document.addEventListener("visibilitychange", seen, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  wait();
}

// retell puts newer nodes into one that has some. Where messages and buttons say the same, they stay, and so do links with the focus.
export function retell(node, newer) {
  const fresh = element("div", {}, ...newer);
  const all = (of, selector) => [...of.querySelectorAll(selector)];
  const lasting = (of) => all(of, ".message, button").map(({ textContent }) => textContent).join("\n");
  const facts = all(fresh, ".facts");
  if (lasting(fresh) !== lasting(node) || facts.length !== all(node, ".facts").length) {
    node.replaceChildren(...fresh.childNodes);
    return;
  }
  all(node, ".facts").forEach((p, i) => p.replaceChildren(...facts[i].childNodes));
}
