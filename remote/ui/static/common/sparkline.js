// A small graph of one line, with its numbers in words.

import { element, shape } from "./dom.js";
import { count, time } from "./format.js";
import { bytes } from "./quantities.js";

// The size of the drawing, which is stretched to the room there is.
const width = 240, height = 48;

// sparkline shows values at times, in seconds since 1970 and ascending. The axis begins at 0, or at the least value if
// that is less. What is null or no number is a gap, and so is time without points. A unit stands behind the numbers,
// such as "/s"; "B" and those that begin with it are sizes, and " ms" becomes s from 1,000 on.
export function sparkline({ times, values, unit = "", label }) {
  const numbers = values.filter(isNumber);
  if (numbers.length === 0) {
    return element("figure", { class: "spark" }, element("figcaption", {}, element("span", { class: "name" }, label), " no values yet"));
  }
  const text = (v) => (unit.startsWith("B") ? bytes(v) + unit.slice(1) : unit === " ms" && Math.abs(v) >= 1000 ? `${count(v / 1000)} s` : `${count(v)}${unit}`);
  const [min, max] = [numbers.reduce((a, b) => Math.min(a, b)), numbers.reduce((a, b) => Math.max(a, b))];
  const facts = `min ${text(min)}, max ${text(max)}`;
  const name = `${label}: last ${text(numbers.at(-1))}, ${facts}, from ${time(times[0])} to ${time(times.at(-1))}`;
  return element("figure", { class: "spark" },
    element("figcaption", { "aria-hidden": true }, element("span", { class: "name" }, label), " ", element("strong", {}, text(numbers.at(-1))),
      " ", element("span", { class: "facts" }, facts)),
    drawing(name, runsOf(times, values), { from: times[0], to: times.at(-1), low: Math.min(0, min), high: Math.max(0, max) }));
}

// miniature draws such a line without words, from a time to another, with a mark at a third.
export function miniature({ times, values, label, from, to, mark }) {
  const numbers = values.filter(isNumber);
  const low = numbers.reduce((a, b) => Math.min(a, b), 0), high = numbers.reduce((a, b) => Math.max(a, b), 0);
  return element("div", { class: "spark" }, drawing(label, runsOf(times, values), { from, to, low, high, mark }));
}

function isNumber(v) {
  return typeof v === "number" && Number.isFinite(v);
}

function drawing(name, runs, { from, to, low, high, mark }) {
  const x = (t) => round(to > from ? (t - from) / (to - from) * width : width / 2);
  const y = (v) => round(height - 2 - (high > low ? (v - low) / (high - low) : 0) * (height - 4));
  const dot = ([t, v]) => `M${Math.min(x(t), width - 3)} ${y(v)}h3`;
  const line = runs.map((run) => (run.length === 1 ? dot(run[0]) : `M${run.map(([t, v]) => `${x(t)} ${y(v)}`).join("L")}`)).join("");
  const area = runs.filter((run) => run.length > 1).map((run) =>
    `M${x(run[0][0])} ${y(0)}L${run.map(([t, v]) => `${x(t)} ${y(v)}`).join("L")}L${x(run.at(-1)[0])} ${y(0)}Z`).join("");
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": name },
    shape("path", { class: "base", d: `M0 ${y(0)}h${width}${mark > from && mark < to ? `M${x(mark)} 0V${height}` : ""}` }), shape("path", { class: "area", d: area }), shape("path", { class: "line", d: line }));
}

// runsOf cuts the line where there is no value, and where two times are further apart than most are.
function runsOf(times, values) {
  const gaps = times.slice(1).map((t, i) => t - times[i]).sort((a, b) => a - b);
  const usual = gaps[Math.floor(gaps.length / 2)];
  const runs = [[]];
  times.forEach((t, i) => {
    if (!isNumber(values[i]) || t - times[i - 1] > 1.5 * usual) {
      runs.push([]);
    }
    if (isNumber(values[i])) {
      runs.at(-1).push([t, values[i]]);
    }
  });
  return runs.filter((run) => run.length > 0);
}

function round(v) {
  return Math.round(v * 100) / 100;
}
