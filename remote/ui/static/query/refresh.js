// A graph that is asked for again by itself.

import { message } from "../common/dom.js";
import { time } from "../common/format.js";
import { seconds } from "./times.js";

// refresh calls again() every so often, as every says, a duration such as 5s, until signal is aborted: after the answer of the time before, not while
// the page is hidden, and not while busy(). Where it fails it says so in the node problems, and goes on.
export function refresh(every, again, busy, problems, signal) {
  const pause = seconds(every) * 1000;
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
        problems.replaceChildren(message("error", `${err.message} The graph is that of ${time(last)}; it is asked for again every ${every}.`));
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
