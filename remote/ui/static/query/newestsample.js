// What helps where an expression has no samples in a range: where they are, or what its metrics may be called.

import { ask } from "../common/api.js";
import { element } from "../common/dom.js";
import { sample, time, utc } from "../common/format.js";
import { nearest } from "./nearest.js";
import { matchersIn, namesIn, treeOf } from "./syntaxtrees.js";

// most is how many series of a selector are looked at, mostNames how many names of metrics.
const most = 1000, mostNames = 20_000;

// newest returns a node that names the newest sample of the selectors of an expression, and shows the time up to it; nothing if there is none. Series that have ended
// properly have none. If expressions are given, of which this is one, and it has a name that no metric has, those that are like it are offered instead.
export async function newest(expr, signal, navigate, expressions) {
  const tree = await treeOf(expr, signal);
  const written = (matchers) => `{${matchers.map((m) => `${JSON.stringify(m.name)}${m.type}${JSON.stringify(m.value)}`).join(", ")}}`;
  const selectors = [...new Set(matchersIn(tree).map(written))];
  if (selectors.length === 0) {
    return "";
  }
  const found = await ask("current", { "match[]": selectors, limit: most }, { signal });
  const there = new Set(found.data.samples.map(({ metric }) => metric.__name__));
  const absent = [...new Set(namesIn(tree))].filter((name) => name && !there.has(name));
  const similar = expressions && absent.length > 0 && !found.data.truncated ? await called(absent, expr, signal, navigate, expressions) : "";
  const last = found.data.samples.reduce((latest, s) => Math.max(latest, sample(s).t), -Infinity);
  if (similar || last === -Infinity) {
    return similar;
  }
  const end = Math.ceil(last);
  return element("p", {}, `The newest sample${found.data.truncated ? ` of the first ${most} series` : ""} is at ${time(last)}. `,
    element("button", { type: "button", onclick: () => navigate({ end: utc(end) }) }, "Show the range before it"));
}

// called returns a node that offers names that are like one of absent, which no metric has, or nothing.
async function called(absent, expr, signal, navigate, expressions) {
  const { data: names } = await ask("label/__name__/values", { limit: mostNames }, { signal });
  const missing = absent.find((name) => !names.includes(name));
  const found = missing ? nearest(missing, names) : [];
  if (found.length === 0) {
    return "";
  }
  const instead = (name) => expressions.map((text) => (text === expr ? renamed(text, missing, name) : text));
  return element("p", {}, "No metric is called ", element("code", {}, missing), ". Did you mean ", ...found.flatMap((name, i) => [
    i === 0 ? "" : i === found.length - 1 ? " or " : ", ", element("button", { type: "button", onclick: () => navigate({ expr: instead(name) }) }, name),
  ]), "?");
}

// renamed writes another name where an expression has one as a word.
function renamed(expr, name, other) {
  const literal = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return expr.replace(new RegExp(`(?<![\\w:.])${literal}(?![\\w:.])`, "g"), () => other);
}
