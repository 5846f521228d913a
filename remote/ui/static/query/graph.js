// A graph of range vectors, drawn by uPlot, with a legend that can be used
// without a mouse.

import * as axis from "./axis.js";
import { element, message, table } from "../common/dom.js";
import { count, inUTC, number, series, time } from "../common/format.js";

// The colours of lines, light and dark; more lines take them again, dashed.
const colours = {
  light: ["#2457c5", "#b3261e", "#1b7a3d", "#8a5a00", "#7b2fa8", "#00727f", "#b0206e", "#4f5b66"],
  dark: ["#86aefc", "#ff9a8f", "#7bd88f", "#f2c063", "#d3a4f5", "#6fd6e0", "#ff9bd0", "#b6c2cf"],
};

// graph returns the nodes of a graph of series, from start to end in seconds, and
// how to draw it once they are on the page. onZoom(from, to) is called with what
// somebody selects. strip(signal), if there is one, returns a node that stands under the
// graph, and place({ left, width, from, to }), which is called with where the
// axis of time is, in pixels of the graph and in seconds, whenever that changes.
export function graph(drawn, { start, end }, onZoom, { strip } = {}) {
  if (drawn.length === 0) {
    return { nodes: [element("p", {}, "No series has a value in this range.")] };
  }
  const { times, columns } = align(drawn);
  const plot = element("div", { class: "graph", role: "img", "aria-label": `Graph of ${drawn.length} series from ${time(start)} to ${time(end)}` });
  const lines = drawn.map((s, i) => ({ name: series(s.metric), values: columns[i], index: i + 1, ...look(i) }));
  const legend = legendOf(lines, (index, shown) => chart?.setSeries(index, { show: shown }));
  const below = element("div", {});
  let chart;
  const draw = (signal) => {
    const under = strip?.(signal);
    below.replaceChildren(...(under ? [under.node] : []));
    const size = () => ({ width: plot.clientWidth, height: Math.max(260, Math.min(420, innerHeight * 0.5)) });
    chart = new uPlot({ ...size(), ...options(lines, { start, end }, onZoom, under?.place) }, [times, ...columns.map((values) => values.map(drawable))], plot);
    const resized = new ResizeObserver(() => chart.setSize(size()));
    resized.observe(plot);
    signal.addEventListener("abort", () => {
      resized.disconnect();
      chart.destroy();
    });
  };
  return { nodes: [...undrawable(columns), plot, below, legend], draw };
}

// align puts series on one axis of time; where one has no value there is null, a
// gap.
function align(drawn) {
  const all = drawn.map((s) => new Map([
    ...(s.values ?? []).map(([t, v]) => [t, number(v)]),
    ...(s.histograms ?? []).map(([t, h]) => [t, number(h.count)]),
  ]));
  const times = [...new Set(all.flatMap((values) => [...values.keys()]))].sort((a, b) => a - b);
  return { times, columns: all.map((values) => times.map((t) => values.get(t) ?? null)) };
}

// maxDrawn is the largest value that is drawn: uPlot computes with differences of
// them.
const maxDrawn = 1e300;

// drawable is a value that has a place in the graph, or null, which is a gap.
function drawable(v) {
  return Math.abs(v) <= maxDrawn ? v : null;
}

// undrawable says which values have no place in the graph, if there are any.
function undrawable(columns) {
  const kinds = [["+Inf", (v) => v === Infinity], ["-Inf", (v) => v === -Infinity], ["NaN", Number.isNaN], ["beyond 1e300", (v) => Number.isFinite(v) && Math.abs(v) > maxDrawn]];
  const without = columns.filter((values) => values.some((v) => v !== null && drawable(v) === null));
  if (without.length === 0) {
    return [];
  }
  const met = kinds.filter(([, is]) => without.some((values) => values.some((v) => v !== null && is(v)))).map(([name]) => name);
  return [message("warning", `Gaps in ${count(without.length)} of the lines are values that cannot be drawn: ${met.join(", ")}. The list below has them.`)];
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// look returns the colour and the dashes of the i-th line.
function look(i) {
  const palette = isDark() ? colours.dark : colours.light;
  const dashes = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];
  return { colour: palette[i % palette.length], dash: dashes[Math.floor(i / palette.length) % dashes.length] };
}

function options(lines, { start, end }, onZoom, place) {
  const line = { stroke: resolved("--line"), width: 1 };
  const both = { font: axis.font(), stroke: resolved("--faint"), grid: line, ticks: line };
  return {
    series: [{}, ...lines.map(({ name, colour, dash }) => ({ label: name, stroke: colour, dash, width: 1.5, points: { size: 4 } }))],
    scales: { x: { min: start, max: end }, y: { range: padded } },
    axes: [
      { ...both, space: axis.timeSpace, values: (_, ticks, at, space, increment) => axis.times(ticks, increment) },
      { ...both, size: axis.valueSize, values: (_, ticks, at, space, increment) => axis.values(ticks, increment) },
    ],
    padding: [null, 40, null, null], // half a day's label, in pixels
    tzDate: (t) => (inUTC() ? uPlot.tzDate(new Date(t * 1000), "Etc/UTC") : new Date(t * 1000)),
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false } },
    hooks: {
      draw: [(u) => place?.({ left: u.over.offsetLeft, width: u.over.offsetWidth, from: u.scales.x.min, to: u.scales.x.max })],
      setCursor: [(u) => lines.forEach((l) => l.point(u.cursor.idx))],
      setSelect: [(u) => u.select.width > 4 && onZoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
    },
  };
}

// resolved returns a colour of the style sheet as the canvas understands it.
function resolved(variable) {
  const probe = element("span", {});
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

// padded leaves room above and below, also for a line that is flat. Values that
// differ by less than floats can tell are as flat.
function padded(_, min, max) {
  if (min === null) {
    return [0, 1];
  }
  const largest = Math.max(Math.abs(min), Math.abs(max));
  const room = max - min > largest * 1e-12 ? (max - min) * 0.08 : largest * 0.1 || 1;
  return [min >= 0 && min - room < 0 ? 0 : min - room, max + room];
}

// legendOf lists the lines, each with a box that hides it and with its value
// under the cursor. It gives each line point(index), which shows that value.
function legendOf(lines, onToggle) {
  for (const line of lines) {
    const present = line.values.filter((v) => v !== null);
    const numbers = present.filter((v) => !Number.isNaN(v));
    line.last = present.at(-1);
    line.min = numbers.reduce((a, b) => Math.min(a, b), numbers[0] ?? NaN);
    line.max = numbers.reduce((a, b) => Math.max(a, b), numbers[0] ?? NaN);
    line.under = element("span", {});
    line.point = (index) => {
      const v = index === null || index === undefined ? null : line.values[index];
      line.under.textContent = v === null ? "" : text(v);
    };
  }
  return table(undefined, [
    { title: "Series", kind: "text", value: (l) => l.name, cell: (l) => element("label", {},
      element("input", { type: "checkbox", checked: !l.hidden, onchange: ({ target }) => { // sorted, the row is made anew
        l.hidden = !target.checked;
        onToggle(l.index, target.checked);
      } }),
      " ", swatch(l), " ", l.name) },
    { title: "Cursor", kind: "number", cell: (l) => l.under },
    { title: "Last", kind: "number", cell: (l) => text(l.last), value: (l) => l.last },
    { title: "Min", kind: "number", cell: (l) => text(l.min), value: (l) => l.min },
    { title: "Max", kind: "number", cell: (l) => text(l.max), value: (l) => l.max },
  ], lines);
}

// text writes a value as Prometheus does if it is no number for people.
function text(v) {
  if (!Number.isFinite(v)) {
    return Number.isNaN(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf";
  }
  const size = Math.abs(v);
  return size >= 1e15 ? String(v) : size >= 1e6 || Number.isInteger(v) ? count(v) : String(Number(v.toPrecision(6)));
}

// swatch is the piece of line that stands for a series.
function swatch({ colour, dash }) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("width", 24);
  svg.setAttribute("height", 8);
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svg.namespaceURI, "path");
  line.setAttribute("d", "M0 4h24");
  line.setAttribute("stroke", colour);
  line.setAttribute("stroke-width", 3);
  if (dash) {
    line.setAttribute("stroke-dasharray", dash.join(" "));
  }
  svg.append(line);
  return svg;
}
