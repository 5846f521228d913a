// The buckets of histograms over time, as the cells of a heatmap.

import { number } from "../common/format.js";

// isClassic says whether a series is a bucket of a classic histogram.
export const isClassic = ({ metric, values }) => values?.length > 0 && metric.le !== undefined && !Number.isNaN(number(metric.le));

// isNative says whether a series is of native histograms.
export const isNative = (s) => s.histograms?.length > 0;

// cellsOf returns the buckets that a range vector has at each of its times, in order, as { lower, upper, count } by their lower bounds, with
// how many histograms are added up; nothing if there is none.
export function cellsOf(result) {
  const classic = groups(result.filter(isClassic));
  const native = result.filter(isNative);
  if (classic.length + native.length === 0) {
    return undefined;
  }
  const columns = new Map(); // by time, by the bounds
  const add = (t, lower, upper, count) => {
    const column = columns.get(t) ?? columns.set(t, new Map()).get(t);
    const key = `${lower} ${upper}`;
    const cell = column.get(key) ?? column.set(key, { lower, upper, count: 0 }).get(key);
    cell.count += count;
  };
  classic.forEach((group) => addClassic(group, add));
  for (const [t, h] of native.flatMap(({ histograms }) => histograms)) {
    columns.get(t) ?? columns.set(t, new Map());
    for (const [, lower, upper, count] of h.buckets ?? []) {
      add(t, number(lower), number(upper), number(count));
    }
  }
  const times = [...columns.keys()].sort((a, b) => a - b);
  return {
    times, histograms: classic.length + native.length,
    columns: times.map((t) => [...columns.get(t).values()].sort((a, b) => a.lower - b.lower)),
  };
}

// groups puts the buckets of each classic histogram together, by their bounds.
function groups(buckets) {
  const found = new Map();
  for (const { metric: { le, ...rest }, values } of buckets) {
    const key = JSON.stringify(Object.entries(rest).sort());
    const group = found.get(key) ?? found.set(key, []).get(key);
    group.push({ le: number(le), values: new Map(values.map(([t, v]) => [t, number(v)])) });
  }
  return [...found.values()].map((group) => group.sort((a, b) => a.le - b.le));
}

// addClassic adds the buckets of a classic histogram. Where each has at least what is in the one before, they are cumulative, and
// what is added is the difference.
function addClassic(group, add) {
  const times = [...new Set(group.flatMap(({ values }) => [...values.keys()]))];
  const present = (t) => group.filter(({ values }) => Number.isFinite(values.get(t)));
  const rounding = 1e-9;
  const isCumulative = times.every((t) => present(t).every(({ values }, i, all) => i === 0 || values.get(t) >= all[i - 1].values.get(t) * (1 - rounding)));
  for (const t of times) {
    let lower = -Infinity, before = 0;
    for (const { le, values } of present(t)) {
      const from = lower === -Infinity && le > 0 ? 0 : lower;
      const v = values.get(t);
      add(t, from, le, Math.max(0, isCumulative ? v - before : v));
      lower = le;
      before = v;
    }
  }
}

// axisOf returns where bounds are on an axis: pos(v), which is v itself, or its logarithm where they differ much, with 0 and
// values below it on the other side; the least and the greatest place; and the places of ticks, with the bounds that they are of.
export function axisOf(columns) {
  const filled = columns.flat().filter(({ count }) => count > 0);
  const cells = filled.length > 0 ? filled : columns.flat();
  const bounds = [...new Set(cells.flatMap(({ lower, upper }) => [lower, upper]))].sort((a, b) => a - b);
  const finite = bounds.filter(Number.isFinite);
  const sizes = finite.map(Math.abs).filter((v) => v > 0);
  const least = Math.min(...sizes), greatest = Math.max(...sizes);
  const isLog = greatest / least >= 50;
  const ratios = cells.filter(({ lower, upper }) => lower > 0 && upper < Infinity).map(({ lower, upper }) => Math.log10(upper / lower)).sort((a, b) => a - b);
  const row = isLog ? ratios[Math.floor(ratios.length / 2)] || 0.3 : 0; // of what is around 0
  const place = (v) => (isLog ? Math.sign(v) * (v === 0 ? 0 : row + Math.log10(Math.abs(v) / least)) : v);
  const first = place(finite[0] ?? 0), last = place(finite.at(-1) ?? 1);
  const beyond = isLog ? row : (last - first) / Math.max(1, finite.length - 1) || 1; // of what has no end
  const pos = (v) => (v === Infinity ? last + beyond : v === -Infinity ? first - beyond : place(v));
  return { pos, isLog, bounds, min: pos(bounds[0] ?? 0), max: pos(bounds.at(-1) ?? 1) };
}

// ticksOf returns the bounds that are named on an axis which is so many pixels high: those of the buckets where they are few and round, or
// else round numbers.
export function ticksOf({ pos, isLog, bounds, min, max }, height) {
  const isRound = (v) => !Number.isFinite(v) || Number(v.toPrecision(3)) === v;
  const space = 20; // in pixels
  const apart = (list) => list.reduce((kept, v) => (kept.length > 0 && (pos(v) - pos(kept.at(-1))) / (max - min) * height < space ? kept : [...kept, v]), []);
  if (bounds.every(isRound) && bounds.length <= 40) {
    return apart(bounds);
  }
  const finite = bounds.filter(Number.isFinite);
  if (!isLog) {
    const about = (finite.at(-1) - finite[0]) / 6;
    const unit = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].find((n) => n * unit >= about) * unit;
    return Array.from({ length: 20 }, (_, i) => (Math.ceil(finite[0] / step) + i) * step).filter((v) => v <= finite.at(-1));
  }
  const sizes = finite.map(Math.abs).filter((v) => v > 0);
  const powers = [];
  for (let e = Math.floor(Math.log10(Math.min(...sizes))); e <= Math.log10(Math.max(...sizes)); e++) {
    powers.push(...[1, 2, 5].map((n) => Number(`${n}e${e}`)));
  }
  const all = [...powers.map((v) => -v).reverse(), 0, ...powers].filter((v) => v >= finite[0] && v <= finite.at(-1) && pos(v) >= min && pos(v) <= max);
  const decades = all.filter((v) => v === 0 || Number.isInteger(Math.log10(Math.abs(v))));
  return apart(decades.length >= 4 ? decades : all);
}
