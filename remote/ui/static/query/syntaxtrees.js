// Syntax trees of expressions.

import { ask } from "../common/api.js";

const trees = new Map();

// treeOf returns that of an expression, or nothing if it cannot be read.
export async function treeOf(expr, signal) {
  if (!trees.has(expr)) {
    try {
      trees.set(expr, (await ask("parse_query", { query: expr }, { signal })).data);
    } catch {
      return undefined;
    }
  }
  return trees.get(expr);
}

// matchersIn returns those of each selector of a syntax tree.
export function matchersIn(node) {
  if (node === null || typeof node !== "object") {
    return [];
  }
  return Array.isArray(node.matchers) ? [node.matchers] : Object.values(node).flatMap(matchersIn);
}

// namesIn returns the names of the metrics that a syntax tree selects.
export function namesIn(tree) {
  return matchersIn(tree).map((matchers) => matchers.find(({ name, type }) => name === "__name__" && type === "=")?.value);
}

// readsIn returns what the selectors of an explanation read.
export function readsIn({ read, children = [] }) {
  return [...(read ? [read] : []), ...children.flatMap(readsIn)];
}
