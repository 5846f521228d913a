// The graph of the tab Query: what is asked for, how it is drawn, and that it is asked for again.

import { range } from "../common/api.js";
import { element, message, orMessage } from "../common/dom.js";
import { askOverlays, overlaysOf } from "./overlays.js";
import { isClassic, isNative } from "./buckets.js";
import { showChanges } from "./changes.js";
import { comparison } from "./comparison.js";
import { graph } from "./graph.js";
import { heatmap } from "./heatmap.js";
import { newest } from "./newestsample.js";
import { refresh, retell } from "./refresh.js";
import { shownOf, stepsOf } from "./requests.js";
import { stripOf } from "./resolution.js";
import { namesIn, treeOf } from "./syntaxtrees.js";
import { between, moved } from "./timeranges.js";
import { unitOf } from "./unitinference.js";
import { unit } from "./units.js";
import { fill as keep } from "./visiblelines.js";

// showGraph shows the graph of a state of the page. askAll(times, isRefresh) asks for its expressions, and about(asked) says what there
// is to say of the answers.
export async function showGraph(state, result, signal, navigate, askAll, about) {
  const shown = { only: [...state.only], off: [...state.off] };
  const said = element("div", {}), problems = element("div", {}), place = element("div", { class: "graph-place" }), changes = element("div", { class: "changes" });
  let drawing, overlays;

  // ask returns the times that are shown now, and the answers.
  const ask = async (isRefresh) => {
    const { start, end } = range(state);
    const { step } = stepsOf(start, end, state.step);
    const [asked, over] = await Promise.all([askAll({ start, end }, isRefresh), askOverlays(state, { start, end }, signal)]);
    return { times: { start, end, step }, asked, answers: answersOf(asked), over };
  };
  const say = (asked) => said.replaceChildren(...about(asked));
  const paint = async ({ times, asked, answers, over }) => {
    overlays = await overlaysOf(state, answers, signal);
    overlays.fill(over);
    const options = {
      shown, layers: overlays.layers, strip: stripOf(asked, times, state),
      onShown: (changes) => {
        keep({ ...state, ...changes });
        navigate(changes, { again: false });
      },
      onZoom: (from, to) => navigate(between(from, to)),
      onHeatmap: (heatmap) => navigate({ heatmap }).then(() => result.querySelector(".heat-choice :checked")?.focus()),
      onZoomOut: () => navigate(moved(state, 0, 2, Math.ceil(Date.now() / 1000))),
    };
    const made = answers.length > 0 ? await drawingOf(state, answers, times, options, signal) : { nodes: [] };
    const isEmpty = answers.length > 0 && answers.every((answer) => answer.result.length === 0);
    const found = isEmpty ? await newest(answers[0].expr, signal, navigate, state.expr) : "";
    drawing = made;
    say(asked);
    place.replaceChildren(...made.nodes, ...(made.draw ? overlays.nodes : []), found);
    if (!said.isConnected) {
      result.replaceChildren(said, problems, place, changes);
    }
    made.draw?.(signal);
  };
  const first = await ask();
  await paint(first);
  changes.append(...state.changed ? await orMessage(showChanges(changes, state, first.asked, first.times, signal, navigate), signal) : []);
  if (state.refresh && !state.end) {
    refresh(state.refresh, async () => {
      const now = await ask(true);
      overlays.fill(now.over);
      if (drawing.update?.(now.answers, now.times)) {
        retell(said, about(now.asked));
      } else {
        await paint(now);
      }
    }, () => drawing.busy?.() || overlays.busy(), problems, signal);
  }
}

// answersOf returns the results that there are, with their letters.
function answersOf(asked) {
  return asked.filter(({ error }) => !error).map(({ expr, letter, answer, then }) => (
    { expr, letter, result: answer.data.result, then: then?.result, series: answer.series, isLeast: answer.isLeast }));
}

// drawingOf returns the graph or the heatmap of answers.
export async function drawingOf(state, answers, times, options, signal) {
  const full = answers.filter(({ result }) => result.length > 0);
  const known = await Promise.all(full.map(async (answer) => {
    const tree = await treeOf(answer.expr, signal);
    return { answer, tree, ...unitOf(tree) };
  }));
  const isBuckets = ({ answer: { result }, tree }) => result.every(isNative) || result.every(isClassic) && isOneHistogram(tree);
  const warnings = [], compared = comparison(state.compare)?.words;
  const wanted = state.mode || (known.length === 1 && known.every(isBuckets) ? "heatmap" : "lines");
  if (wanted === "heatmap") {
    const isCut = ({ answer: { result, series } }) => series > result.length;
    const fit = known.filter(({ answer: { result } }) => result.some((s) => isClassic(s) || isNative(s)));
    const whole = fit.filter((one) => !isCut(one));
    if (whole.length > 0) {
      const { answer, counts, observed } = whole.find((one) => one.answer.letter === state.heatmap) ?? whole[0];
      const made = heatmap(answer, times, { ...options, unit: unit(counts), bounds: unit(state.unit || observed) });
      const letters = whole.map((one) => one.answer.letter);
      return { ...made, nodes: [...(compared ? [message("note", "A heatmap is not compared. Draw lines to see both.")] : []), ...(full.length > 1 ? [choiceOf(answer.letter, letters, options.onHeatmap)] : []), ...made.nodes] };
    }
    const cut = fit.find(isCut)?.answer;
    if (cut) {
      warnings.push(message("warning", `A heatmap needs all series, but the limit left ${shownOf(cut.result.length, cut)}. They are drawn as lines. Show more lines, or aggregate: sum by (le) (…).`));
    } else if (full.length > 0) {
      warnings.push(message("warning", "A heatmap needs histograms: series with the label le, or native histograms. These are drawn as lines."));
    }
  }
  const units = new Set(known.map(({ answer, values, counts }) => (answer.result.every(isNative) ? counts : values)));
  const derived = units.size === 1 ? [...units][0] : "";
  const made = graph(answers, times, { ...options, mode: wanted === "heatmap" ? "lines" : wanted, unit: unit(state.unit || derived), compared });
  return { ...made, nodes: [...warnings, ...made.nodes] };
}

// choiceOf says of which expression a heatmap is, and lets another be chosen of those that have one.
function choiceOf(drawn, letters, onChoice) {
  return letters.length === 1 ? message("note", `A heatmap shows one expression: ${drawn}.`)
    : element("fieldset", { class: "heat-choice" }, element("legend", {}, "A heatmap shows one expression:"), ...letters.map((letter) => element("label", {},
      element("input", { type: "radio", name: "heat-choice", checked: letter === drawn, onchange: () => onChoice(letter) }), ` ${letter}`)));
}

// isOneHistogram says whether an expression is the buckets of one classic histogram, as counts of observations.
function isOneHistogram(tree) {
  const names = new Set(namesIn(tree));
  return names.size === 1 && [...names][0]?.endsWith("_bucket") === true && keepsCounts(tree);
}

// Functions of counts of observations whose values are again such counts, or so many in each second.
const ofCounts = ["rate", "irate", "increase", "delta", "idelta", "sum_over_time", "avg_over_time", "min_over_time", "max_over_time", "last_over_time", "first_over_time",
  "label_replace", "label_join"];

// keepsCounts says whether the values of an expression are counts if those of its selectors are.
function keepsCounts(node) {
  const isNumber = ({ type, expr }) => type === "numberLiteral" || type === "parenExpr" && isNumber(expr);
  switch (node.type) {
    case "vectorSelector":
    case "matrixSelector":
      return true;
    case "parenExpr":
    case "subquery":
      return keepsCounts(node.expr);
    case "call":
      return ofCounts.includes(node.func.name) && keepsCounts(node.args[0]);
    case "aggregation":
      return ["sum", "avg", "min", "max"].includes(node.op) && keepsCounts(node.expr);
    case "binaryExpr":
      return node.op === "*" && isNumber(node.lhs) && keepsCounts(node.rhs) || ["*", "/"].includes(node.op) && isNumber(node.rhs) && keepsCounts(node.lhs);
    default:
      return false;
  }
}
