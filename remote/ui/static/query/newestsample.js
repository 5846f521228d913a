// Where the samples are of an expression that has none in a range.

import { ask } from "../common/api.js";
import { element } from "../common/dom.js";
import { sample, time, utc } from "../common/format.js";
import { matchersIn, treeOf } from "./syntaxtrees.js";

// most is how many series of a selector are looked at.
const most = 1000;

// newest returns a node that names the newest sample of the selectors of an
// expression, and shows the time up to it; nothing if there is none. Series that
// have ended properly have none.
export async function newest(expr, signal, navigate) {
  const written = (matchers) => `{${matchers.map((m) => `${JSON.stringify(m.name)}${m.type}${JSON.stringify(m.value)}`).join(", ")}}`;
  const selectors = [...new Set(matchersIn(await treeOf(expr, signal)).map(written))];
  if (selectors.length === 0) {
    return "";
  }
  const found = await ask("current", { "match[]": selectors, limit: most }, { signal });
  const last = found.data.samples.reduce((latest, s) => Math.max(latest, sample(s).t), -Infinity);
  if (last === -Infinity) {
    return "";
  }
  const end = Math.ceil(last);
  return element("p", {}, `The newest sample${found.data.truncated ? ` of the first ${most} series` : ""} is at ${time(last)}. `,
    element("button", { type: "button", onclick: () => navigate({ end: utc(end) }) }, "Show the range before it"));
}
