// What the page shows before there is a query.

import { element } from "../common/dom.js";

// start returns the nodes of it.
export async function start(signal) {
  return [element("p", { class: "hint" },
    "The adapter stores its own metrics too: try ", example("adapter_build_info", "table"), " or ",
    example("rate(adapter_write_samples_total[5m])", "graph"), ".")];
}

function example(expr, view) {
  return element("a", { href: `?${new URLSearchParams({ tab: "query", expr, view })}` }, element("code", {}, expr));
}
