// How the lines of a graph are drawn: as lines, as areas on top of each other, as points or as bars.

import { drawable } from "./lines.js";

// areaAlpha is how much of its colour an area has, as the end of a colour.
const areaAlpha = "66";

// drawing returns how lines are drawn in a mode: columns() are the values where they are drawn, of those that are shown, and
// span(i, at) from where to where the i-th line reaches at a time. style(line, i) are options of uPlot. fromZero says that the axis has 0.
// A line says whether it is shown, as isShown, and which it is of those that are, as place of places.
export function drawing(mode, lines) {
  const columns = () => lines.map((line) => (line.isShown ? line.values.map(drawable) : line.values.map(() => null)));
  const flat = { columns: () => lines.map((line) => line.values.map(drawable)), span: (i, at) => [drawable(lines[i].values[at]), drawable(lines[i].values[at])], fromZero: false };
  switch (mode) {
    case "stacked":
      return stacked(columns);
    case "bars":
      return { ...flat, fromZero: true, span: (i, at) => [0, drawable(lines[i].values[at])], style: (line, i) => ({
        points: { show: false }, paths: bars(line, i) }) };
    case "points":
      return { ...flat, style: (line) => ({ stroke: line.colour, width: 1.5, paths: () => null, points: { show: true, size: 5, fill: line.colour } }) };
    default:
      return { ...flat, style: (line) => ({ stroke: line.colour, dash: line.dash, width: 1.5, points: { size: 4 } }) };
  }
}

// stacked puts each line on top of those before it, values below 0 under them.
function stacked(columns) {
  let tops, bases;
  const place = () => {
    const shown = columns();
    const above = shown[0]?.map(() => 0) ?? [];
    const below = [...above];
    bases = shown.map((values) => values.map(() => 0));
    tops = shown.map((values, i) => values.map((v, at) => {
      if (v === null) {
        return null;
      }
      const side = v < 0 ? below : above;
      bases[i][at] = side[at];
      side[at] += v;
      return side[at];
    }));
    return tops;
  };
  return {
    columns: place,
    fromZero: true,
    span: (i, at) => (tops[i][at] === null ? [null, null] : [bases[i][at], tops[i][at]]),
    style: (line, i) => ({ stroke: line.colour, fill: line.colour + areaAlpha, width: 1, points: { show: false }, paths: (u) => areas(u, tops[i], bases[i]) }),
  };
}

// areas draws one for each run of values without a gap.
function areas(u, tops, bases) {
  const fill = new Path2D(), stroke = new Path2D();
  const x = (at) => u.valToPos(u.data[0][at], "x", true), y = (v) => u.valToPos(v, "y", true);
  let from = 0;
  while (from < tops.length) {
    if (tops[from] === null) {
      from++;
      continue;
    }
    let to = from;
    while (to + 1 < tops.length && tops[to + 1] !== null) {
      to++;
    }
    const indexes = Array.from({ length: to - from + 1 }, (_, i) => from + i);
    const side = (ys) => (from === to
      ? [[x(from) - 1.5, y(ys[from])], [x(from) + 1.5, y(ys[from])]] // one alone is to be seen, too
      : indexes.map((at) => [x(at), y(ys[at])]));
    trace(stroke, side(tops));
    trace(fill, [...side(tops), ...side(bases).reverse()]);
    fill.closePath();
    from = to + 1;
  }
  return { fill, stroke, clip: null, band: null, gaps: null, flags: 3 }; // both are cut at the edges of the plot
}

function trace(path, [first, ...rest]) {
  path.moveTo(...first);
  rest.forEach((point) => path.lineTo(...point));
}

// bars draws one for each value of the i-th line, those of a time beside each other. They are drawn at once, as a path
// of so many takes a browser seconds.
function bars(line, i) {
  return (u) => {
    const { ctx, bbox } = u;
    const { left, width } = barAt(u, line, true);
    const zero = u.valToPos(0, "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = line.colour;
    u.data[0].forEach((t, at) => {
      const v = u.data[i + 1][at];
      if (v !== null) {
        const y = u.valToPos(v, "y", true);
        ctx.fillRect(u.valToPos(t, "x", true) + left, Math.min(y, zero), width, Math.max(1, Math.abs(y - zero)));
      }
    });
    ctx.restore();
    return null;
  };
}

// steps are the least distances between times, by the times. The last time is the end, which may be soon after the step before it.
const steps = new WeakMap();

function stepOf(times) {
  if (!steps.has(times)) {
    steps.set(times, Math.min(...times.slice(1, Math.max(2, times.length - 1)).map((t, at) => t - times[at])));
  }
  return steps.get(times);
}

// barAt returns where the bar of a line is, in pixels from the time that it is of: of the canvas, or of the page.
export function barAt(u, { place, places }, ofCanvas) {
  const times = u.data[0];
  const step = times.length > 1 ? stepOf(times) : (u.scales.x.max - u.scales.x.min) / 20;
  const room = (u.valToPos(times[0] + step, "x", ofCanvas) - u.valToPos(times[0], "x", ofCanvas)) * 0.8;
  return { left: -room / 2 + place * room / places, width: Math.max(1, room / places) };
}
