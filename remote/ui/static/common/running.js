// What says that something runs, for how long already, and lets it be cancelled.

import { announce } from "./announce.js";
import { element } from "./dom.js";

// soon is how long nothing is said, in milliseconds: most answers are there before.
const soon = 500;

// showRunning shows that something runs, until the function that it returns is called. cancel is called when the reader wants it to end.
export function showRunning(cancel) {
  const began = performance.now();
  const seconds = () => ((performance.now() - began) / 1000).toFixed(1);
  const elapsed = element("span", {});
  const bar = element("div", { class: "running" }, elapsed, element("button", { type: "button", onclick: () => {
    cancel();
    announce(`Cancelled after ${seconds()} s.`);
  } }, "Cancel"));
  const tell = () => { elapsed.textContent = `Running, ${seconds()} s`; };
  let ticks;
  const start = setTimeout(() => {
    tell();
    document.getElementById("main").append(bar);
    announce("It is running.");
    ticks = setInterval(tell, 100);
  }, soon);
  return () => {
    clearTimeout(start);
    clearInterval(ticks);
    bar.remove();
  };
}
