// Which part of a graph comes from samples and which from rollups: a strip under the plot.

import { ask } from "../common/api.js";
import { element } from "../common/dom.js";
import { capital, time } from "../common/format.js";
import { finerFirst } from "../common/quantities.js";
import { stepsOf } from "./requests.js";
import { readsIn } from "./syntaxtrees.js";

// hasRollups says whether rollups were read for an answer.
function hasRollups({ resolution = "" }) {
  return resolution.split(",").some((name) => name && name !== "raw");
}

const raw = { read: ["raw"] };

// sourceOf returns the name of the look of a part, and what it is in words.
export function sourceOf({ read, gone = false, widened = false }) {
  const rollups = read.filter((name) => name !== "raw");
  const isRaw = rollups.length < read.length;
  const words = rollups.map((name) => `${name} rollups`).join(" and ");
  if (gone && read.length === 0) {
    return { look: "nothing", text: "nothing is kept" };
  }
  if (rollups.length === 0) {
    return { look: "raw", text: "raw samples" };
  }
  if (gone) {
    return { look: "gone", text: `samples gone, only ${words}${widened ? ", widened" : ""}${isRaw ? " and raw samples" : ""}` };
  }
  const look = rollups.some((name) => name !== "5m") ? "hour" : "five";
  return isRaw ? { look: `${look} mixed`, text: `${words}, raw samples at the edges` } : { look, text: words };
}

// partsOf returns the parts of a graph from start to end, in seconds: what the values come from, in order of time. plans are
// explanations of its expressions.
function partsOf(plans, { start, end }) {
  const selectors = plans.flatMap(({ tree }) => readsIn(tree)).map(({ parts = [] }) => runs(parts, start, end));
  const bounds = [...new Set([start, end, ...selectors.flat().map(({ to }) => to)])].filter((t) => t >= start && t <= end).sort((a, b) => a - b);
  const joined = [];
  bounds.slice(1).forEach((to, i) => {
    const from = bounds[i];
    const { look, text } = sourceOf(union(selectors.map((parts) => parts.find((p) => p.to >= to) ?? parts.at(-1))));
    const last = joined.at(-1);
    if (last?.text === text) {
      last.to = to;
    } else {
      joined.push({ from, to, look, text });
    }
  });
  return joined;
}

// runs lets each part begin where the one before ends: a line leads to its first step from the last step before.
function runs(parts, start, end) {
  if (parts.length === 0) {
    return [{ ...raw, from: start, to: end }];
  }
  return parts.map((p, i) => ({ ...p, from: i === 0 ? start : parts[i - 1].to / 1000, to: i === parts.length - 1 ? end : p.to / 1000 }));
}

function union(parts) {
  return {
    read: [...new Set(parts.flatMap((p) => p.read))].sort(finerFirst),
    gone: parts.some((p) => p.gone), widened: parts.some((p) => p.widened),
  };
}

// stripOf returns what graph() takes as strip, or undefined if no rollups were read: the parts of the expressions that were asked over
// times. There is nothing to see until the server has said which these are.
export function stripOf(asked, { start, end }, { res, step }) {
  const exprs = asked.filter(({ error }) => !error).map(({ expr }) => expr);
  if (!asked.some(({ answer }) => answer && hasRollups(answer))) {
    return undefined;
  }
  return (signal) => {
    const node = element("div", { class: "resolution", hidden: true });
    let axis, bar;
    const place = (at) => {
      axis = at;
      bar?.place(axis);
    };
    const plan = (query) => ask("explain", { query, ...stepsOf(start, end, step), reads: false, ...(res && { max_source_resolution: res }) }, { signal, post: true });
    Promise.all(exprs.map(plan)).then((answers) => {
      const parts = partsOf(answers.map(({ data }) => data), { start, end });
      bar = barOf(parts);
      node.replaceChildren(...bar.nodes);
      node.hidden = parts.length === 0;
      if (axis) {
        bar.place(axis);
      }
    }, () => {}); // the graph is whole without it
    return { node, place };
  };
}

// barOf returns the nodes of a strip: the parts as one tab stop, a text for the one that is pointed at, and a legend.
function barOf(parts) {
  const said = element("p", { class: "facts said" });
  const say = (p) => {
    said.textContent = `${capital(p.text)}, ${span(p)}`;
  };
  const buttons = parts.map((p, i) => element("button", {
    type: "button", class: `part ${p.look}`, tabindex: i === 0 ? 0 : -1, "aria-label": `${capital(p.text)}, ${span(p)}`,
    onfocus: () => say(p), onpointerenter: () => say(p), onclick: () => say(p), onkeydown: (event) => move(event, i),
  }, element("span", { class: "fill" }), element("span", { class: "words", "aria-hidden": true }, p.text)));
  const move = (event, i) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: parts.length - 1 }[event.key];
    if (buttons[to]) {
      event.preventDefault();
      buttons[i].tabIndex = -1;
      buttons[to].tabIndex = 0;
      buttons[to].focus();
    }
  };
  const group = element("div", { class: "parts", role: "group", "aria-label": "What the values come from" }, ...buttons);
  const place = ({ left, width, from, to }) => {
    group.style.marginLeft = `${left}px`;
    group.style.width = `${width}px`;
    const x = (t) => Math.min(Math.max((t - from) / (to - from), 0), 1) * width;
    parts.forEach((p, i) => {
      const limit = i === parts.length - 1 ? Math.max(p.to, to) : p.to; // a graph that moves on has newer values of the last kind
      buttons[i].style.left = `${x(p.from)}px`;
      buttons[i].style.width = `${Math.max(2, x(limit) - x(p.from))}px`;
      const words = buttons[i].querySelector(".words");
      words.hidden = false;
      words.hidden = words.scrollWidth > words.clientWidth;
    });
  };
  const kinds = [...new Map(parts.map((p) => [p.text, p])).values()];
  const legend = element("ul", { class: "kinds" }, element("li", {}, "Values from:"), ...kinds.map((p) =>
    element("li", {}, element("span", { class: `swatch ${p.look}`, "aria-hidden": true }, element("span", { class: "fill" })), ` ${p.text}`)));
  const sentence = element("p", { class: "unseen" }, `The values come from: ${parts.map((p) => `${p.text} ${span(p)}`).join("; ")}.`);
  return { nodes: [group, sentence, legend, said], place };
}

function span({ from, to }) {
  return `from ${time(from)} to ${time(to)}`;
}
