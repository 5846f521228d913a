// Annotations: where series of an expression of one's own begin, end or change, such as builds and restarts.

import { ask, isTruncated } from "../common/api.js";
import { element, located, message } from "../common/dom.js";
import { capital, count, number, series, time, utc } from "../common/format.js";
import { table } from "../common/table.js";
import { layerOf } from "./layer.js";
import { stepsOf } from "./requests.js";
import { unitOf } from "./unitinference.js";
import { unit } from "./units.js";

// most is how many places are marked, mostSeries how many series are asked for, and few how many changes a card lists.
const most = 200, mostSeries = 500, few = 8;

// askAnnotations returns the changes of an expression from start to end, in seconds, by the steps of a graph: events, in order of time, each { t, metric, text }; and problems.
export async function askAnnotations(expr, { start, end, step }, signal) {
  try {
    const steps = stepsOf(start, end, step);
    const answer = await ask("query_range", { query: expr, ...steps, limit: mostSeries }, { signal, post: true });
    const events = answer.data.result.flatMap((s) => eventsOf(s, steps)).sort((a, b) => a.t - b.t);
    const problems = [
      ...(isTruncated(answer) ? [`Annotations: the expression has ${count(answer.series)} series, and the first ${count(mostSeries)} are looked at.`] : []),
      ...(answer.data.result.some(({ histograms }) => histograms) ? ["Annotations: native histograms are left out."] : []),
    ];
    return { events, problems };
  } catch (error) {
    if (signal.aborted) {
      throw error;
    }
    return { events: [], problems: [`Annotations: ${located(error.message)}`] };
  }
}

// eventsOf returns the changes of a series: from one step to the next it begins, ends, or has another value.
function eventsOf({ metric, values = [] }, { start, end, step }) {
  const at = new Map(values.map(([t, v]) => [Math.round((t - start) / step), v]));
  const { text } = unit(unitOf({ type: "vectorSelector", name: metric.__name__ ?? "", matchers: [] }).values);
  const events = [];
  let before = at.get(0);
  for (let i = 1; start + i * step <= end + step / 1000; i++) {
    const now = at.get(i);
    if (now !== before) { // as texts, of which NaN is one
      events.push({ t: start + i * step, metric, text: now === undefined ? "ended" : before === undefined ? "began" : `${text(number(before))} → ${text(number(now))}` });
    }
    before = now;
  }
  return events;
}

// annotationsOf returns the layer of annotations, the node that lists them, and fill(found), which takes what askAnnotations returns.
export function annotationsOf() {
  const title = ({ events: [first, ...rest] }) => `${series(first.metric)} ${first.text}${rest.length > 0 ? `, and ${count(rest.length)} more` : ""}`;
  const layer = layerOf("annotation", {
    value: () => undefined,
    title,
    tell: ({ t, events }) => [
      element("div", { class: "graph-tip-time" }, time(t)),
      element("ul", { class: "layer-events" }, ...events.slice(0, few).map(({ metric, text }) => element("li", {}, element("code", {}, series(metric)), ` ${text}`))),
      ...(events.length > few ? [element("div", {}, `and ${count(events.length - few)} more`)] : []),
    ],
  });
  const node = element("div", { class: "overlay-list" });
  const fill = ({ events, problems }) => {
    const places = [...Map.groupBy(events, ({ t }) => t)].map(([t, events]) => ({ t, events }));
    const shown = places.slice(0, most);
    layer.fill(shown);
    const isCut = places.length > most;
    node.replaceChildren(
      ...[...problems, ...(isCut ? [`Annotations: there are changes at ${count(places.length)} times, and the first ${count(most)} are marked. Choose series that change rarely.`] : [])].map((text) => message("warning", text)),
      events.length === 0 ? (problems.length > 0 ? "" : element("p", { class: "facts" }, "Annotations: nothing changes in this range."))
        : element("details", {}, element("summary", {}, `${count(events.length)} ${events.length === 1 ? "annotation" : "annotations"}`), table(undefined, [
          { title: "Time", kind: "text", cell: ({ t }) => time(t), value: ({ t }) => t, text: ({ t }) => utc(t) },
          { title: "Series", kind: "text", cell: ({ metric }) => series(metric), value: ({ metric }) => series(metric) },
          { title: "Change", kind: "text", cell: ({ text }) => capital(text) },
        ], events)));
  };
  return { layer, node, fill };
}
