// A graph of series as lines, areas, points or bars, with a legend that can be used without a mouse.

import { element, message } from "../common/dom.js";
import { csv, save } from "../common/export.js";
import { capital, count, time, utc, written, zone } from "../common/format.js";
import { look, swatch } from "./colours.js";
import { changeText } from "./comparison.js";
import { barAt, drawing } from "./drawmodes.js";
import { legendOf } from "./legend.js";
import { drawable, linesOf, maxDrawn } from "./lines.js";
import { picture } from "./picture.js";
import { plotOf } from "./plot.js";
import { isolate, toggle, visible } from "./visiblelines.js";

// graph returns the nodes of a graph of answers, each with a letter and a result, over times, from start to end in seconds, and
// draw(signal), which draws it once they are on the page. update(answers, times) shows newer answers, or returns false if they have other series;
// busy() says whether it is being read. The options: mode is how lines are drawn; unit how values are written; shown says which lines
// are, and onShown(changes) is called when that changes; compared says in words what the answers are compared with, if they are; layers, height, onZoom, onZoomOut and
// strip are those of plotOf.
export function graph(answers, times, { mode, unit, shown, onShown, compared, layers, height, onZoom, onZoomOut, strip }) {
  let { times: at, lines, shared } = linesOf(answers, times.step);
  if (lines.length === 0) {
    return { nodes: [element("p", {}, "No series has a value in this range.")] };
  }
  lines.forEach((line, i) => Object.assign(line, look(i)));
  const viewOf = ({ start, end, step }) => (mode === "bars" ? { start: start - step / 2, end: end + step / 2 } : { start, end }); // bars are around their times
  const view = viewOf(times);
  const way = drawing(mode, lines);
  const note = () => {
    const is = visible(shown, lines);
    lines.forEach((line) => { line.isShown = is(line); });
    const all = lines.filter((line) => line.isShown);
    all.forEach((line, i) => Object.assign(line, { place: i, places: all.length })); // beside each other, as bars
  };
  note();
  const hasThen = compared !== undefined && mode !== "stacked"; // areas on top of each other have no place for it
  const columns = () => [at, ...way.columns(), ...(hasThen ? lines.map(({ then }) => then.map(drawable)) : [])];
  const warnings = element("div", {});
  const warn = () => warnings.replaceChildren(...undrawable(lines), ...(mode === "stacked" && lines.some(({ min }) => min < 0) ? [message("warning", "Values below 0 are stacked downwards from 0.")] : []));
  warn();

  const overlay = element("canvas", { class: "graph-mark" });
  const target = targetOf(lines, way, mode, unit, compared, () => at, () => plot.chart(), (now, i) => {
    legend.mark(now);
    drawMark(overlay, plot.chart(), now, lines[i], way, mode, i);
  });
  const plot = plotOf({
    what: () => `Graph of ${count(lines.length)} series`, view, columns, target, overlay, layers, height, onZoom, onZoomOut, strip,
    tools: [
      ...(hasThen ? [element("span", {}, `Dashed: ${compared}`)] : []),
      tool("Points as CSV", "Save the points of the lines that are shown", async () => save("promtable-points.csv", "text/csv", csv(pointsOf(lines.filter((line) => line.isShown), at, compared)))),
      tool("Picture", "Save the graph with its legend as a PNG", async () => save("promtable-graph.png", "image/png", await picture(plot.chart(), titlesOf(answers, view),
        lines.filter((line) => line.isShown).map(({ colour, dash, letter, label, name, last }) => ({ colour, dash, label: `${letter} ${label === "{}" ? name : label}`.trim(), text: `last ${unit.text(last)}` }))))),
    ],
    describe: () => description(lines.filter((line) => line.isShown), unit),
    series: [{}, ...lines.map((line, i) => ({ label: line.name, show: line.isShown, ...way.style(line, i) })),
      ...(hasThen ? lines.map((line) => ({ label: `${line.name} ${compared}`, show: line.isShown, stroke: line.colour, dash: [3, 4], width: 1.5, alpha: 0.7, points: { size: 3 } })) : [])],
    axis: { incrs: unit.increments, values: (_, ticks, index, space, increment) => unit.labels(ticks, increment) },
    valueRange: (min, max) => padded(...(way.fromZero && min !== null ? [Math.min(0, min), Math.max(0, max)] : [min, max])),
  });
  const change = (changes) => {
    Object.assign(shown, changes);
    note();
    const chart = plot.chart();
    const show = (index, isShown) => chart.series[index].show !== isShown && chart.setSeries(index, { show: isShown });
    lines.forEach((line) => {
      show(line.index, line.isShown);
      hasThen && show(lines.length + line.index, line.isShown);
    });
    plot.refresh();
    legend.refill();
    onShown(changes);
  };
  const legend = legendOf(lines, { shared, text: unit.text, compared, isShown: (line) => line.isShown,
    onIsolate: (line) => change(isolate(shown, lines, line)), onToggle: (line) => change(toggle(shown, lines, line)) });
  const update = (newer, newTimes) => {
    const found = linesOf(newer, newTimes.step);
    if (found.lines.length !== lines.length || found.lines.some(({ key }, i) => key !== lines[i].key)) {
      return false;
    }
    at = found.times;
    Object.assign(view, viewOf(newTimes));
    found.lines.forEach(({ values, last, min, max, avg, then, thenAvg, both }, i) => Object.assign(lines[i], { values, last, min, max, avg, then, thenAvg, both }));
    plot.refresh();
    legend.refill();
    warn();
    return true;
  };
  return { nodes: [warnings, ...plot.nodes, legend.node], legend: legend.node, draw: plot.draw, update, busy: plot.busy };
}

// tool is a button below the graph.
function tool(text, title, onclick) {
  return element("button", { type: "button", title, onclick }, text);
}

// pointsOf returns rows of texts: a time, and the value of each line at it.
function pointsOf(lines, times, compared) {
  const columns = [...lines.map(({ letter, name, values }) => [`${letter} ${name}`.trim(), values]),
    ...(compared === undefined ? [] : lines.map(({ letter, name, then }) => [`${letter} ${name}, ${compared}`.trim(), then]))];
  return [["Time", ...columns.map(([title]) => title)], ...times.map((t, at) => [utc(t), ...columns.map(([, values]) => (values[at] === null ? "" : written(values[at])))])];
}

// titlesOf says above a picture what was asked for, and from when to when.
function titlesOf(answers, { start, end }) {
  return [...answers.map(({ letter, expr }) => (answers.length > 1 ? `${letter} ${expr}` : expr)), `${time(start)} – ${time(end)} ${zone()}`];
}

// description says in a sentence what a graph shows.
function description(lines, { text }) {
  const of = (better) => lines.filter(({ min }) => !Number.isNaN(min)).reduce((best, line) => (best && !better(line, best) ? best : line), undefined);
  const least = of((a, b) => a.min < b.min), greatest = of((a, b) => a.max > b.max);
  if (!least) {
    return `${count(lines.length)} lines are shown.`;
  }
  const name = (line) => (lines.length > 1 ? ` of ${line.name}` : "");
  const last = lines.length === 1 ? ` The last is ${text(least.last)}.` : "";
  return `${count(lines.length)} ${lines.length === 1 ? "line is" : "lines are"} shown. The minimum is ${text(least.min)}${name(least)}, the maximum ${text(greatest.max)}${name(greatest)}.${last}`;
}

// targetOf returns what cursorOf needs to read lines: what it reads is the index of one.
function targetOf(lines, way, mode, unit, compared, times, chart, mark) {
  const has = (at, i) => lines[i]?.isShown && way.span(i, at)[1] !== null;
  const there = (at) => lines.map((_, i) => i).filter((i) => has(at, i));
  const top = (at, i) => chart().valToPos(way.span(i, at)[1], "y");
  const written = (at, i) => unit.text(lines[i].values[at]);
  const total = (at) => unit.text(there(at).reduce((sum, i) => sum + lines[i].values[at], 0));
  const label = (line) => (line.label === "{}" ? line.name : line.label);
  const then = (at, i) => (compared === undefined || lines[i].then[at] === null ? [] : [`${compared}: ${unit.text(lines[i].then[at])} (${changeText(lines[i].values[at], lines[i].then[at])})`]);
  return {
    has, mark, place: top,
    first: (at) => there(at)[0] ?? lines.findIndex((line) => line.isShown),
    near: (at, left, y) => {
      let best, least = Infinity;
      const shown = there(at);
      for (const i of shown) {
        const [from, to] = way.span(i, at).map((v) => chart().valToPos(v, "y"));
        const aside = mode === "bars" ? besideBar(chart(), lines, i, at, left) : 0;
        const inside = mode === "bars" || (y - from) * (y - to) <= 0;
        const distance = inside ? aside : Math.min(Math.abs(y - to), Math.abs(y - from));
        if (distance < least) {
          [best, least] = [i, distance];
        }
      }
      return best;
    },
    beside: (at, thing, d) => {
      const sorted = there(at).sort((a, b) => top(at, b) - top(at, a) || a - b);
      return sorted[Math.max(0, Math.min(sorted.length - 1, sorted.indexOf(thing) + d))] ?? thing;
    },
    tell: (at, i) => [
      element("div", { class: "graph-tip-time" }, time(times()[at])),
      element("div", { class: "graph-tip-line" }, swatch(lines[i]), lines[i].letter && element("b", {}, lines[i].letter), element("strong", {}, written(at, i))),
      element("div", { class: "graph-tip-name" }, label(lines[i])),
      ...then(at, i).map((text) => element("div", {}, capital(text))),
      ...(mode === "stacked" ? [element("div", {}, `Total: ${total(at)}`)] : []),
    ],
    sentence: (at, i) => `${time(times()[at])}: ${written(at, i)}, ${[lines[i].letter, label(lines[i])].join(" ").trim()}${then(at, i).map((text) => `, ${text}`).join("")}${mode === "stacked" ? `, total ${total(at)}` : ""}`,
  };
}

// besideBar returns how far a place is from the bar of a line, in pixels.
function besideBar(chart, lines, i, at, x) {
  const { left, width } = barAt(chart, lines[i], false);
  return Math.abs(x - chart.valToPos(chart.data[0][at], "x") - left - width / 2);
}

// drawMark draws the line that is read once more, above the others, and its point.
function drawMark(overlay, chart, at, line, way, mode, i) {
  const { clientWidth: width, clientHeight: height } = overlay;
  const ratio = devicePixelRatio;
  Object.assign(overlay, { width: width * ratio, height: height * ratio }); // this clears it, too
  if (at === null) {
    return;
  }
  const context = overlay.getContext("2d");
  context.scale(ratio, ratio);
  const x = (t) => chart.valToPos(chart.data[0][t], "x"), y = (t) => chart.valToPos(way.span(i, t)[1], "y");
  Object.assign(context, { strokeStyle: line.colour, fillStyle: line.colour, lineWidth: 3 });
  if (mode !== "bars" && mode !== "points") {
    let isGap = true;
    context.beginPath();
    for (let t = 0; t < chart.data[0].length; t++) {
      const is = way.span(i, t)[1] !== null;
      is && context[isGap ? "moveTo" : "lineTo"](x(t), y(t));
      isGap = !is;
    }
    context.stroke();
  }
  const { left, width: wide } = mode === "bars" ? barAt(chart, line, false) : { left: 0, width: 0 };
  context.beginPath();
  context.arc(x(at) + left + wide / 2, y(at), 5, 0, 2 * Math.PI);
  context.fill();
}

// undrawable says which values have no place in the graph, if there are any.
function undrawable(lines) {
  const kinds = [["+Inf", (v) => v === Infinity], ["-Inf", (v) => v === -Infinity], ["beyond 1e300", (v) => Number.isFinite(v) && Math.abs(v) > maxDrawn]];
  const having = (is) => lines.filter(({ values }) => values.some((v) => v !== null && is(v))).length;
  const met = kinds.filter(([, is]) => having(is) > 0).map(([name]) => name);
  const large = having((v) => !Number.isNaN(v) && drawable(v) === null), none = having(Number.isNaN);
  return [
    ...(large > 0 ? [message("warning", `Gaps in ${count(large)} of the lines are values that cannot be drawn: ${met.join(", ")}.`)] : []),
    ...(none > 0 ? [message("note", `Gaps in ${count(none)} of the lines are NaN values, such as 0 / 0.`)] : []),
  ];
}

// padded leaves room above and below, also for a line that is flat. Values that
// differ by less than floats can tell are as flat.
function padded(min, max) {
  if (min === null) {
    return [0, 1];
  }
  const largest = Math.max(Math.abs(min), Math.abs(max));
  const room = max - min > largest * 1e-12 ? (max - min) * 0.08 : largest * 0.1 || 1;
  return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
}
