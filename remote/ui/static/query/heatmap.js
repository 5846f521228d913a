// A heatmap: how many observations the buckets of histograms have over time.

import { axisOf, cellsOf, ticksOf } from "./buckets.js";
import { element, message } from "../common/dom.js";
import { count, time } from "../common/format.js";
import { scale } from "./colours.js";
import { plotOf } from "./plot.js";

// heatmap returns what graph does, for the histograms of an answer; nothing if it has none. bounds is the unit of what
// they observe, unit that of the counts.
export function heatmap({ letter, result }, times, { unit, bounds, layers, height, onZoom, onZoomOut, strip }) {
  let cells = cellsOf(result);
  if (!cells) {
    return undefined;
  }
  const view = { ...times };
  let across = axisOf(cells.columns);
  const colours = scale();
  const notes = element("div", {}), legend = element("div", { class: "heat-legend" });
  let most;
  const measure = () => {
    most = cells.columns.reduce((most, column) => column.reduce((m, cell) => Math.max(m, cell.count), most), 0);
    notes.replaceChildren(...(cells.histograms > 1 ? [message("note", `The heatmap shows the sum of ${count(cells.histograms)} histograms.`)] : []));
    legend.replaceChildren(...legendOf(colours, most, unit));
  };
  measure();
  const shade = (n) => Math.min(colours.length - 1, Math.floor(Math.sqrt(n / most) * colours.length));
  const name = ({ lower, upper }) => `${bounds.text(lower)} – ${bounds.text(upper)}`;
  const find = (at, thing) => cells.columns[at]?.find(({ lower, upper }) => thing && lower === thing.lower && upper === thing.upper);
  const chart = () => plot.chart();
  const frame = element("div", { class: "heat-mark", hidden: true });
  const target = {
    has: (at, thing) => find(at, thing) !== undefined,
    first: (at) => [...cells.columns[at]].sort((a, b) => b.count - a.count)[0],
    near: (at, left, y) => {
      const v = chart().posToVal(y, "y");
      return cells.columns[at].find(({ lower, upper }) => across.pos(lower) <= v && v < across.pos(upper));
    },
    beside: (at, thing, d) => {
      const column = cells.columns[at];
      return column[Math.max(0, Math.min(column.length - 1, column.indexOf(find(at, thing)) + d))] ?? thing;
    },
    place: (at, { lower, upper }) => chart().valToPos((across.pos(lower) + across.pos(upper)) / 2, "y"),
    tell: (at, thing) => [
      element("div", { class: "graph-tip-time" }, time(cells.times[at])),
      element("div", { class: "graph-tip-line" }, element("strong", {}, unit.text(find(at, thing).count))),
      element("div", { class: "graph-tip-name" }, name(thing)),
    ],
    sentence: (at, thing) => `${time(cells.times[at])}: ${unit.text(find(at, thing).count)} from ${bounds.text(thing.lower)} to ${bounds.text(thing.upper)}`,
    mark: (at, thing) => {
      frame.hidden = at === null;
      if (at !== null) {
        const [left, right] = edges(chart(), cells.times, at, view.step, false);
        const [top, bottom] = [thing.upper, thing.lower].map((v) => chart().valToPos(across.pos(v), "y"));
        Object.assign(frame.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
      }
    },
  };
  const plot = plotOf({
    what: () => `Heatmap of ${count(cells.histograms)} ${cells.histograms === 1 ? "histogram" : "histograms"}`, view, target, overlay: frame, layers, height, scaled: (v) => across.pos(v), onZoom, onZoomOut, strip,
    describe: () => description(cells, most, unit, name),
    columns: () => [cells.times, cells.times.map(() => null)],
    series: [{}, { paths: () => null, points: { show: false } }],
    axis: {
      grid: { show: false },
      splits: (u) => ticksOf(across, u.over.clientHeight || 300).map(across.pos),
      values: (u) => ticksOf(across, u.over.clientHeight || 300).map((v) => bounds.text(v)),
    },
    valueRange: () => [across.min, across.max],
    drawn: (u) => drawCells(u, cells, across, view.step, (n) => colours[shade(n)]),
  });
  const update = (answers, newer) => {
    const found = cellsOf(answers.find((a) => a.letter === letter)?.result ?? []);
    if (!found) {
      return false;
    }
    cells = found;
    across = axisOf(cells.columns);
    Object.assign(view, newer);
    measure();
    plot.refresh();
    return true;
  };
  return { nodes: [notes, ...plot.nodes, legend], draw: plot.draw, update, busy: plot.busy };
}

// edges returns from where to where in pixels the cells of the at-th time are: half a step to each side, or half way to the next time.
function edges(u, times, at, step, ofCanvas) {
  const t = times[at], half = (other) => Math.min(step, Math.abs((other ?? Infinity) - t)) / 2;
  return [t - half(times[at - 1]), t + half(times[at + 1])].map((edge) => u.valToPos(edge, "x", ofCanvas));
}

function drawCells(u, cells, across, step, colour) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  cells.times.forEach((_, at) => {
    const [left, right] = edges(u, cells.times, at, step, true).map(Math.round);
    for (const { lower, upper, count: n } of cells.columns[at]) {
      if (n > 0) {
        const [top, bottom] = [upper, lower].map((v) => Math.round(u.valToPos(across.pos(v), "y", true)));
        ctx.fillStyle = colour(n);
        const gap = bottom - top > 6 ? 1 : 0; // between rows
        ctx.fillRect(left, top, Math.max(1, right - left), Math.max(1, bottom - top - gap));
      }
    }
  });
  ctx.restore();
}

// legendOf shows which colours are how many.
function legendOf(colours, most, unit) {
  const bar = element("div", { class: "heat-scale", "aria-hidden": "true" });
  bar.style.background = `linear-gradient(to right, ${colours.join(", ")})`;
  // The colour goes with the root of the count: few are to be seen beside many.
  const marks = [0, 0.25, 1].map((part) => element("span", {}, part === 0 ? "0" : unit.text(Number((part * most).toPrecision(3)))));
  return [element("span", {}, "Observations per bucket:"), element("div", { class: "heat-key" }, bar, element("div", { class: "heat-marks" }, ...marks))];
}

// description says in a sentence where most observations are.
function description({ times, columns }, most, unit, name) {
  let place;
  columns.forEach((column, at) => column.forEach((cell) => {
    place = cell.count === most && most > 0 ? { at, cell } : place;
  }));
  const total = (column) => column.reduce((sum, cell) => sum + cell.count, 0);
  const last = columns.at(-1) ?? [];
  return place
    ? `The fullest bucket has ${unit.text(most)}, from ${name(place.cell).replace(" – ", " to ")} at ${time(times[place.at])}. The last histogram has ${unit.text(total(last))} in total.`
    : "All buckets are empty.";
}
