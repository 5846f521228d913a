// The lines of a graph: the series of its answers on one axis of time, with the labels that tell them apart.

import { number as read, series } from "../common/format.js";

// letter names the i-th expression of the page: A, B, …
export function letter(i) {
  return i < 26 ? String.fromCharCode(65 + i) : letter(Math.floor(i / 26) - 1) + letter(i % 26);
}

// linesOf returns the times of the series of answers, which were asked for in steps of so many seconds, and a line for each of the series: its values
// at the times, null where it has none, its name, its label, which leaves out what all have in common, and a key that names it in the URL. Where an
// answer has what it is compared with, as then, the line has those values, too, as then, their average, or undefined, and as both the averages of now and
// then over the times with a value of both.
export function linesOf(answers, step) {
  const all = answers.flatMap(({ letter, result, then = [] }) => {
    const before = new Map(then.map((s) => [series(s.metric), pointsOf(s)]));
    return result.map((s) => ({ letter, metric: s.metric, points: pointsOf(s), before: before.get(series(s.metric)) ?? new Map() }));
  });
  const times = withEmptySteps([...new Set(all.flatMap(({ points, before }) => [...points.keys(), ...before.keys()]))].sort((a, b) => a - b), step);
  const shared = all.length > 1 ? sharedBy(all.map(({ metric }) => metric)) : {};
  const several = answers.length > 1;
  const lines = all.map(({ letter, metric, points, before }, i) => {
    const name = series(metric);
    const own = Object.fromEntries(Object.entries(metric).filter(([label]) => !Object.hasOwn(shared, label)));
    const values = times.map((t) => points.get(t) ?? null);
    const then = times.map((t) => before.get(t) ?? null);
    const where = (given, other) => factsOf(given.map((v, at) => (other[at] === null ? null : v))).avg;
    return {
      name, letter: several ? letter : "", label: series(own), key: letter === "A" ? name : `${letter} ${name}`, index: i + 1, values, ...factsOf(values), then,
      ...(before.size > 0 ? { thenAvg: factsOf(then).avg, both: { now: where(values, then), then: where(then, values) } } : { both: { now: factsOf(values).avg } }),
    };
  });
  return { times, lines, shared: Object.keys(shared).length > 0 ? series(shared) : "" };
}

// withEmptySteps adds the steps between times at which no series has a value, so that each line has a gap there.
function withEmptySteps(times, step) {
  return times.flatMap((t, i) => {
    const missing = Math.max(0, Math.round((times[i + 1] - t) / step) - 1) || 0; // none behind the last time
    return [t, ...Array.from({ length: missing }, (_, k) => Math.round((t + (k + 1) * step) * 1000) / 1000)];
  });
}

function pointsOf(s) {
  return new Map([
    ...(s.values ?? []).map(([t, v]) => [t, read(v)]),
    ...(s.histograms ?? []).map(([t, h]) => [t, read(h.count)]),
  ]);
}

// sharedBy returns the labels that all label sets have with the same value.
function sharedBy([first, ...rest]) {
  return Object.fromEntries(Object.entries(first).filter(([label, value]) => rest.every((metric) => metric[label] === value)));
}

// factsOf returns the last, the least, the greatest and the average of values.
function factsOf(values) {
  let last, least = NaN, greatest = NaN, sum = 0, numbers = 0;
  for (const v of values) {
    if (v === null) {
      continue;
    }
    last = v;
    if (!Number.isNaN(v)) {
      least = v >= least ? least : v; // also where there is none yet
      greatest = v <= greatest ? greatest : v;
      sum += v;
      numbers++;
    }
  }
  return { last, min: least, max: greatest, avg: numbers ? sum / numbers : NaN };
}

// maxDrawn is the largest value that is drawn: uPlot computes with differences of them.
export const maxDrawn = 1e300;

// drawable is a value that has a place in the graph, or null, which is a gap.
export function drawable(v) {
  return Math.abs(v) <= maxDrawn ? v : null;
}
