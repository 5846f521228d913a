// What lies over a graph, and is listed below it: exemplars and annotations.

import * as expressions from "./expressions.js";
import { annotationsOf, askAnnotations } from "./annotations.js";
import { askExemplars, exemplarsOf, isObserved } from "./exemplars.js";
import { namesIn, treeOf } from "./syntaxtrees.js";
import { observedBy } from "./unitinference.js";
import { unit } from "./units.js";

// askOverlays returns what a state of the page wants over its graph from start to end, in seconds.
export async function askOverlays(state, { start, end }, signal) {
  const [exemplars, annotations] = await Promise.all([
    state.exemplars && askExemplars(expressions.shown(state), { start, end }, signal),
    state.annotate && askAnnotations(state.annotate, { start, end, step: state.step }, signal),
  ]);
  return { exemplars, annotations };
}

// overlaysOf returns the layers of a graph of answers, the nodes below it, fill(found), which takes what askOverlays returns, and busy(), whether one of them is being read.
export async function overlaysOf(state, answers, signal) {
  const trees = new Map(state.exemplars ? await Promise.all(answers.map(async ({ letter, expr }) => [letter, await treeOf(expr, signal)])) : []);
  const observed = observedBy([...trees.values()].flatMap((tree) => namesIn(tree ?? null)));
  const parts = {
    ...(state.annotate && { annotations: annotationsOf() }),
    ...(state.exemplars && { exemplars: exemplarsOf(unit(state.unit || observed), (letter) => isObserved(trees.get(letter))) }),
  };
  const all = Object.values(parts);
  return {
    layers: all.map(({ layer }) => layer), nodes: all.map(({ node }) => node),
    fill: (found) => Object.entries(parts).forEach(([name, { fill }]) => fill(found[name])),
    busy: () => all.some(({ layer }) => layer.busy()),
  };
}
