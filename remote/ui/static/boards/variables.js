// Variables of boards: $name in expressions stands for what is chosen.

import { ask } from "../common/api.js";
import { element } from "../common/dom.js";
import { formatDuration } from "../common/quantities.js";

// most is how many values a variable offers.
const most = 1000;

// all is what stands for any value, in a regular expression.
const all = ".*";

const reference = /\$\{(\w+)(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]|\$(\w+)/g;

// string is one of PromQL, with the operator of regular expressions in front if there is one.
const string = /(=~|!~)?(\s*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/g;

// A value is what a variable stands for: a text, and whether that is the value of a label, which is meant as it is in regular expressions, too.

// substituted returns an expression with the values of variables, by name, and with what Grafana calls the time: $__interval, $__rate_interval and $__range.
export function substituted(expr, values, { start, end, step }) {
  const known = {
    __interval: formatDuration(step), __interval_ms: String(step * 1000), __rate_interval: formatDuration(Math.max(300, step)), // of four samples a minute or of one, and of rollups
    __range: formatDuration(Math.round(end - start)), __range_s: String(Math.round(end - start)),
  };
  const filled = (part, written) => part.replace(reference, (whole, ...names) => {
    const name = names.slice(0, 3).find(Boolean);
    return Object.hasOwn(known, name) ? known[name] : Object.hasOwn(values, name) ? written(values[name]) : whole;
  });
  let done = 0, result = "";
  for (const found of expr.matchAll(string)) {
    const [whole, operator = "", space, literal] = found;
    const inString = ({ text, isLabel }) => (operator && isLabel ? text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") : text).replace(/[\\"']/g, "\\$&");
    result += filled(expr.slice(done, found.index), ({ text }) => text) + operator + space + filled(literal, inString);
    done = found.index + whole.length;
  }
  return result + filled(expr.slice(done), ({ text }) => text);
}

// titled returns a title with the values of variables.
export function titled(title, values) {
  return title.replace(reference, (whole, ...names) => {
    const value = values[names.slice(0, 3).find(Boolean)]?.text;
    return value === all ? "All" : value ?? whole;
  });
}

// isPlain says whether an expression compares a variable as it is, so that it cannot stand for any value.
function isPlain(expr, name) {
  return [...expr.matchAll(/(=~|!~|!=|=)\s*(["'`])((?:(?!\2).)*)\2/g)].some(([, operator, , text]) => !operator.endsWith("~") && [...text.matchAll(reference)].some((found) => found.slice(1, 4).includes(name)));
}

// choices returns the values of the variables of a board by name, with those that a state has chosen as name=value, and a node for each in which another one is chosen: onChoice(chosen) is
// called then. times are those of the board.
export async function choices(board, chosen, times, signal, onChoice) {
  const wanted = new Map(chosen.map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]));
  const values = {}, nodes = [];
  for (const { name, label, metric, regex, values: fixed } of board.variables ?? []) {
    const found = fixed ?? (await ask(`label/${encodeURIComponent(label)}/values`, { start: times.start, end: times.end, limit: most, ...(metric && { "match[]": substituted(metric, values, times) }) }, { signal })).data;
    const offered = regex ? [...new Set(found.map((value) => value.match(regex)).filter(Boolean).map(([whole, group]) => group ?? whole))] : found;
    const options = [...(fixed || board.panels.some(({ exprs }) => exprs.some((expr) => isPlain(expr, name))) ? [] : [all]), ...offered];
    const text = wanted.get(name) ?? options[0] ?? all;
    values[name] = { text, isLabel: !fixed && text !== all };
    const select = element("select", { name: `var-${name}`, onchange: () => onChoice([...chosen.filter((text) => !text.startsWith(`${name}=`)), `${name}=${select.value}`]) },
      ...[...new Set([...options, text])].map((value) => element("option", { value, selected: value === text }, value === all ? "All" : value)));
    nodes.push(element("label", {}, `${name} `, select));
  }
  return { values, nodes };
}
