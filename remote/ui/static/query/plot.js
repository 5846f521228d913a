// What graphs of all kinds have in common: the frame around the plot, its axes, its size and its cursor.

import * as axis from "./axis.js";
import { element } from "../common/dom.js";
import { inUTC, time, zone } from "../common/format.js";
import { resolved } from "./colours.js";
import { cursorOf } from "./cursor.js";

// leastDrag is how far the mouse is dragged to select a range, in pixels.
const leastDrag = 5;

// isLarge says whether graphs are as high as the window, but for roomBeside, in pixels.
let isLarge = false;
const roomBeside = 90;

// made counts the graphs that were made.
let made = 0;

// ends has for each chart that was drawn its node, and what ends it. Those that are not on the page any more end when another one is drawn.
const ends = new Map();

// plotOf returns the frame of a graph: its nodes, draw(signal), which draws it once they are on the page, until they are not, refresh(), which shows a new view
// and new data, and chart(), which returns that of uPlot. what names the graph and describe tells what it shows. series and axis, that of the values,
// are options of uPlot, valueRange(min, max) is from where to where the values are, columns() returns the data and drawn(chart) is called when they
// are drawn. target is what cursorOf needs, and overlay a node that lies over the plot. view says from where to where the graph is, in seconds.
// onZoom(from, to) and onZoomOut() are called for what is selected. strip(signal), if there is one, returns a node that stands under the
// graph, and place({ left, width, from, to }), which is called with where the axis of time is, in pixels of the graph and
// in seconds, whenever that changes. tools are nodes that stand below it.
// height is in pixels, where it is not that of a graph alone. layers are those of layerOf, and scaled(v), if there is one, returns where on the axis an observed value is.
export function plotOf({ what, describe, view, series, axis: valueAxis, valueRange, columns, drawn = () => {}, target, overlay, layers = [], scaled, height, onZoom, onZoomOut, strip, tools = [] }) {
  const id = `graph-description-${++made}`;
  const description = element("p", { class: "unseen graph-description", id });
  const said = element("p", { class: "unseen", "aria-live": "polite" });
  const node = element("div", { class: "graph", tabindex: "0", role: "application", "aria-describedby": id, "aria-live": "off" });
  const below = element("div", {});
  const cursor = cursorOf(node, said, target);
  let chart;
  const name = () => {
    node.setAttribute("aria-label", `${what()} from ${time(view.start)} to ${time(view.end)}`);
    description.textContent = `${describe()} Use the arrow keys to read the points.`;
  };
  name();
  const size = () => ({ width: node.clientWidth, height: Math.max(height ?? 260, isLarge ? innerHeight - roomBeside : height ?? Math.min(420, innerHeight * 0.5)) });
  const enlarge = element("button", { type: "button", "aria-pressed": String(isLarge), title: "As high as the window, or as before", onclick: () => {
    isLarge = !isLarge;
    enlarge.setAttribute("aria-pressed", String(isLarge));
    chart.setSize(size());
    isLarge && node.scrollIntoView({ block: "start" });
  } }, "Large");
  const draw = (signal) => {
    const under = strip?.(signal);
    below.replaceChildren(...(under ? [under.node] : []));
    const line = { stroke: resolved("--line"), width: 1 };
    const colours = { stroke: resolved("--faint"), grid: line, ticks: line };
    chart = new uPlot({
      ...size(), series,
      padding: [null, 40, null, null], // half a day's label, in pixels
      tzDate: (t) => (inUTC() ? uPlot.tzDate(new Date(t * 1000), "Etc/UTC") : new Date(t * 1000)),
      legend: { show: false },
      scales: { x: { range: () => [view.start, view.end] }, y: { range: (_, min, max) => valueRange(min, max) } },
      axes: [{ ...colours, ...axis.ofTimes }, { ...colours, size: axis.valueSize, ...valueAxis }],
      cursor: { points: { show: false }, drag: { dist: leastDrag, setScale: false }, bind: { dblclick: () => zoomOut } },
      plugins: [{ hooks: cursor.hooks }, { hooks: {
        setSelect: ({ select: { left, width }, posToVal }) => {
          const [from, to] = [left, left + width].map((x) => posToVal(x, "x"));
          setTimeout(() => node.isConnected && onZoom(from, to)); // later, as uPlot removes its listeners at the end of a drag only while there is a chart
        },
        draw: (u) => {
          drawn(u);
          layers.forEach((layer) => layer.place(u, (v) => u.valToPos(scaled ? scaled(v) : v, "y"), scaled !== undefined));
          under?.place({ left: u.over.offsetLeft, width: u.over.offsetWidth, from: u.scales.x.min, to: u.scales.x.max });
        },
      } }],
    }, columns(), node);
    chart.over.append(overlay, ...layers.map(({ node }) => node));
    const resized = new ResizeObserver(() => node.clientWidth > 0 && chart.setSize(size())); // or its tab is hidden
    resized.observe(node);
    for (const [other, end] of ends) {
      if (!other.isConnected) {
        end();
        ends.delete(other);
      }
    }
    ends.set(node, () => {
      resized.disconnect();
      chart.destroy();
    });
  };
  const zoomOut = () => {
    cursor.hide();
    onZoomOut();
  };
  const refresh = () => {
    name();
    chart.setData(columns());
  };
  const foot = element("div", { class: "graph-zone" }, element("span", {}, `Times are in ${zone()}`), enlarge, ...tools);
  return { nodes: [description, said, node, foot, below], draw, refresh, busy: cursor.busy, chart: () => chart };
}
