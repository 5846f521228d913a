// What graphs of all kinds have in common: the frame around the plot, its axes, its size and its cursor.

import * as axis from "./axis.js";
import { element } from "../common/dom.js";
import { inUTC, time, zone } from "../common/format.js";
import { cursorOf } from "./cursor.js";
import { resolved } from "./looks.js";

// plotOf returns the frame of a graph: its nodes, and draw(signal), which draws it once they are on the page. what names the graph.
// options(frame) are those of uPlot beside what all graphs have, columns() its data, target what cursorOf needs. view says
// from where to where it is, in seconds; refresh() shows a new view and new data. onZoom(from, to) and onZoomOut() are called
// for what is selected. strip(signal), if there is one, returns a node that stands under the
// graph, and place({ left, width, from, to }), which is called with where the axis of time is, in pixels of the graph and
// in seconds, whenever that changes.
export function plotOf({ what, view, options, columns, target, describe, onZoom, onZoomOut, strip }) {
  const description = element("p", { class: "unseen", id: "graph-description" });
  const said = element("p", { class: "unseen", "aria-live": "polite" });
  const node = element("div", { class: "graph", tabindex: "0", role: "application", "aria-describedby": "graph-description", "aria-live": "off" });
  const below = element("div", {});
  const cursor = cursorOf(node, said, target, onZoomOut);
  let chart;
  const name = () => {
    node.setAttribute("aria-label", `${what()} from ${time(view.start)} to ${time(view.end)}`);
    description.textContent = `${describe()} Arrow keys read the points.`;
  };
  name();
  const draw = (signal) => {
    const under = strip?.(signal);
    below.replaceChildren(...(under ? [under.node] : []));
    const size = () => ({ width: node.clientWidth, height: Math.max(260, Math.min(420, innerHeight * 0.5)) });
    const own = options();
    chart = new uPlot({ ...size(), ...shared(signal), ...own,
      scales: { x: { range: () => [view.start, view.end] }, y: own.scales.y },
      axes: [timeAxis(), { ...colours(), ...own.axes[0] }],
      hooks: { ...own.hooks,
        setCursor: [() => chart && cursor.moved()],
        setSelect: [(u) => u.select.width > 4 && onZoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
        draw: [...(own.hooks?.draw ?? []), (u) => under?.place?.({ left: u.over.offsetLeft, width: u.over.offsetWidth, from: u.scales.x.min, to: u.scales.x.max })],
      } }, columns(), node);
    cursor.attach(chart, signal);
    const resized = new ResizeObserver(() => chart.setSize(size()));
    resized.observe(node);
    signal.addEventListener("abort", () => {
      resized.disconnect();
      chart.destroy();
    });
  };
  const refresh = () => {
    name();
    chart.setData(columns());
    cursor.again();
  };
  const foot = element("div", { class: "graph-zone" }, `Times are in ${zone()}`);
  return { nodes: [description, said, node, foot, below], draw, refresh, busy: cursor.busy, chart: () => chart };
}

function colours() {
  const line = { stroke: resolved("--line"), width: 1 };
  return { font: axis.font(), stroke: resolved("--faint"), grid: line, ticks: line };
}

function timeAxis() {
  return { ...colours(), space: axis.timeSpace, values: (_, ticks, at, space, increment) => axis.times(ticks, increment) };
}

// shared are options that all graphs have. signal ends when the chart is destroyed.
function shared(signal) {
  return {
    padding: [null, 40, null, null], // half a day's label, in pixels
    tzDate: (t) => (inUTC() ? uPlot.tzDate(new Date(t * 1000), "Etc/UTC") : new Date(t * 1000)),
    legend: { show: false },
    cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => null, mouseup: onRelease(signal) } },
  };
}

// onRelease listens for the end of a drag in place of uPlot. uPlot forgets its listener on the document when a chart is destroyed
// during a drag, or by the zoom at its end; every later click would then zoom again.
function onRelease(signal) {
  return (_, target, handle) => {
    const released = new AbortController();
    target.addEventListener("mouseup", (event) => {
      if (event.button === 0) {
        released.abort();
        handle(event);
      }
    }, { signal: AbortSignal.any([signal, released.signal]) });
    return null; // uPlot adds no listener of its own
  };
}
