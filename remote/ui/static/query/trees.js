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

// namesIn returns the names of the metrics that a syntax tree selects.
export function namesIn(node) {
  if (node === null || typeof node !== "object") {
    return [];
  }
  const own = Array.isArray(node.matchers) ? [node.matchers.find(({ name, type }) => name === "__name__" && type === "=")?.value] : [];
  return [...own, ...Object.values(node).flatMap(namesIn)];
}
