// Metrics by their prefixes, and what is drawn of one without typing an expression.

import { announce } from "../common/announce.js";
import { ask, notes, range } from "../common/api.js";
import { element, message, orMessage } from "../common/dom.js";
import { count, instant, series } from "../common/format.js";
import { byOf, expressionsOf, heatmapOf, kindOf, windowOf } from "../common/metrickinds.js";
import { labelName, link, matcher, withMatcher } from "../common/selectors.js";
import { table } from "../common/table.js";
import { graph } from "../query/graph.js";
import { newest } from "../query/newestsample.js";
import { askInstant, askRange, shownOf, stepsOf } from "../query/requests.js";
import { results } from "../query/resulttable.js";
import { treeOf } from "../query/syntaxtrees.js";
import { between, moved } from "../query/timeranges.js";
import { unitOf } from "../query/unitinference.js";
import { unit } from "../query/units.js";

// mostValues is how many values of a label are listed, and mostLines how many series are drawn.
const mostValues = 100, mostLines = 60;

// none is the state of by where no label is wanted.
const none = "-";

// What the form does not show is beside it.
const rest = { prefix: "", metric: "", by: "", label: "", match: [] };

export function fill(form, state) {
  form.dataset.rest = JSON.stringify(Object.fromEntries(Object.keys(rest).map((name) => [name, state[name]])));
}

export function read(form) {
  return { ...rest, ...JSON.parse(form.dataset.rest ?? "{}") };
}

export async function show(state, result, signal, navigate) {
  const to = (changes) => link("explore", { ...state, ...changes });
  const names = element("div", { class: "names" });
  const chosen = element("div", { class: "metric" });
  result.replaceChildren(element("div", { class: state.metric ? "explore chosen" : "explore" }, names, chosen));
  if (!state.metric) {
    chosen.append(element("p", { class: "hint" }, "Choose a metric to see its graph, labels and values."));
  }
  const list = lister(names, state, signal, to);
  findWhileTyping(names, list, signal, navigate);
  const shown = [list()];
  if (state.metric) {
    shown.push(append(chosen, showMetric(chosen, state, signal, navigate, to), signal));
  }
  await Promise.all(shown);
}

// lister returns a function that lists the names. What it was asked for before is not shown any more.
function lister(names, state, signal, to) {
  let last = new AbortController();
  return async () => {
    last.abort();
    const own = last = new AbortController();
    try {
      await showNames(names, state, AbortSignal.any([signal, own.signal]), to);
    } catch (error) {
      if (!own.signal.aborted) {
        throw error;
      }
    }
  };
}

// typingPause is after how long without a key the names are searched, in milliseconds.
const typingPause = 200;

// findWhileTyping lists the names that contain what is typed into the field. The metric that is shown stays as it is.
function findWhileTyping(names, list, signal, navigate) {
  const field = document.querySelector("#explore input[name=search]");
  let pause;
  field.oninput = () => {
    clearTimeout(pause);
    pause = setTimeout(async () => {
      if (signal.aborted) {
        return;
      }
      navigate({ search: field.value }, { again: false });
      try {
        await list();
        announce(names.querySelector(".facts")?.textContent ?? "");
      } catch (error) {
        if (!signal.aborted) {
          names.replaceChildren(message("error", error.message));
        }
      }
    }, typingPause);
  };
}

// append lets a part fill a node, and appends what went wrong with it.
async function append(node, part, signal) {
  node.append(...await orMessage(part, signal));
}

// dateOf says of which index period the metrics are: that of the end.
function dateOf({ end }) {
  return instant(end) < Date.now() / 1000 ? { date: String(instant(end)) } : {};
}

// counted are the index periods whose series this page has asked to be counted, with the time when it did.
const counted = new Map();

// countAgain is after how long they are counted again, if the adapter has the counts no more, in milliseconds.
const countAgain = 600_000;

// showNames lists names. Where their series are not counted yet, the numbers come later.
async function showNames(node, state, signal, to) {
  const search = state.search.trim();
  const asked = { ...dateOf(state), ...(search ? { search } : { prefix: state.prefix }) };
  const { data } = await ask("metric_names", asked, { signal });
  node.replaceChildren(...namesOf(data, state, to));
  if (!data.counted && data.total > 0 && !(Date.now() - counted.get(data.minTime) < countAgain)) {
    counted.set(data.minTime, Date.now());
    ask("status/tsdb", { limit: 1, ...dateOf(state) }, { signal }).then(() => ask("metric_names", asked, { signal })).then(({ data: again }) => {
      if (!node.contains(document.activeElement)) {
        node.replaceChildren(...namesOf(again, state, to));
      }
    }, () => counted.delete(data.minTime)); // they are not needed
  }
}

function namesOf(data, state, to) {
  const search = state.search.trim();
  const number = (n) => (data.counted ? element("span", { class: "count" }, `${count(n)} series`) : "");
  const groups = data.groups.map((group) => ({ key: group.prefix, node: element("li", {},
    element("a", { class: "group", href: to({ prefix: group.prefix, search: "" }) }, `${group.prefix}…`), element("span", { class: "count" }, `${count(group.names)} metrics`), number(group.series)) }));
  const names = data.names.map((metric) => ({ key: metric.name, node: element("li", {},
    element("a", { href: to({ metric: metric.name, by: "", label: "", match: [] }), "aria-current": metric.name === state.metric && "true", title: metric.help }, metric.name),
    metric.type && metric.type !== "unknown" ? element("span", { class: "count" }, metric.type) : "", number(metric.series)) }));
  const all = [...groups, ...names];
  if (!search) {
    all.sort((a, b) => (a.key < b.key ? -1 : 1));
  }
  const facts = data.total === 0 ? "This index period has no series." : search
    ? `${count(data.found)} of ${count(data.total)} metrics` : `${count(data.found)} metrics${state.prefix ? ` begin with ${state.prefix}` : ""}`;
  return [
    ...(state.prefix && !search ? [crumbs(state.prefix, to)] : []),
    element("p", { class: "facts" }, facts),
    element("ul", {}, ...all.map(({ node }) => node)),
    ...(data.left > 0 ? [element("p", { class: "hint" }, `${count(data.left)} more are not listed: search by name.`)] : []),
  ];
}

// crumbs leads back to shorter prefixes.
function crumbs(prefix, to) {
  const parts = prefix.match(/[^_:.]*[_:.]+|[^_:.]+$/g) ?? [prefix];
  const links = parts.slice(0, -1).map((part, i) => element("a", { href: to({ prefix: parts.slice(0, i + 1).join("") }) }, part));
  return element("nav", { class: "crumbs", "aria-label": "Prefixes" }, element("a", { href: to({ prefix: "" }) }, "All metrics"), ...links, element("span", {}, parts.at(-1)));
}

async function showMetric(node, state, signal, navigate, to) {
  const selector = state.match.reduce(withMatcher, series({ __name__: state.metric }));
  const times = range(state);
  const [{ data: said }, { data: counts }] = await Promise.all([
    ask("metric_names", { search: state.metric, limit: 1, ...dateOf(state) }, { signal }),
    ask("status/tsdb", { "match[]": selector, limit: mostValues, ...dateOf(state) }, { signal }),
  ]);
  const metric = said.names.find(({ name }) => name === state.metric) ?? { name: state.metric };
  const labels = labelsOf(counts);
  const number = counts.headStats.numSeries;
  const kind = kindOf(metric, labels.map(({ name }) => name));
  const by = state.by === none ? "" : state.by || (["buckets", "native"].includes(kind) ? "" : byOf(labels));
  const drawn = element("div", {}), values = element("div", { class: "values" });
  if (number === 0) {
    node.replaceChildren(heading(metric, [], state, to), ...await missing(state, selector, signal, navigate, to));
    return;
  }
  const known = metric.type && metric.type !== "unknown";
  const facts = [known ? metric.type : `unknown type, drawn as ${drawnAs[kind]}`, metric.unit, `${count(number)} series`].filter(Boolean);
  node.replaceChildren(heading(metric, facts, state, to), drawn,
    element("div", { class: "breakdown" }, labelList(labels, by, state, to), values));
  const label = state.label || by;
  await Promise.all([
    append(drawn, draw(drawn, kind, { number, by, selector, times, state }, signal, navigate), signal),
    label ? append(values, listValues(values, label, labels, selector, state, signal, to), signal) : undefined,
  ]);
}

// labelsOf returns the labels of counts, with the numbers of their values and series.
function labelsOf(counts) {
  const bySeries = new Map(counts.seriesCountByLabelName.map(({ name, value }) => [name, value]));
  return counts.labelValueCountByLabelName.filter(({ name }) => name !== "__name__")
    .map(({ name, value }) => ({ name, values: value, series: bySeries.get(name) ?? 0 })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

// drawnAs names kinds.
const drawnAs = { counter: "a counter", gauge: "a gauge", buckets: "a histogram", native: "a histogram", summary: "a summary", info: "a table" };

// mostOthers is how many other names are offered where there is no metric of a name.
const mostOthers = 10;

// missing says that nothing is there of a metric in the time, and leads to its newest sample and to the metrics whose names begin with its own,
// such as those of a histogram.
async function missing(state, selector, signal, navigate, to) {
  const [found, { data: { names } }] = await Promise.all([
    newest(selector, signal, navigate), ask("metric_names", { prefix: `${state.metric}_`, limit: mostOthers, ...dateOf(state) }, { signal })]);
  return [
    element("p", {}, state.match.length > 0 ? "No series with these labels around the end of this range." : "No such metric around the end of this range."),
    found,
    names.length > 0 ? element("p", { class: "links" }, "Similar metrics: ", ...names.map(({ name }) =>
      element("a", { href: to({ metric: name, by: "", label: "", match: [] }) }, name))) : "",
  ];
}

function heading(metric, facts, state, to) {
  return element("div", {},
    element("a", { class: "back", href: to({ metric: "", by: "", label: "", match: [] }) }, "Back to the metrics"),
    element("h2", {}, element("code", {}, metric.name)),
    element("p", { class: "facts" }, facts.join(" · "), metric.help ? `: ${metric.help}` : ""),
    state.match.length > 0 ? element("p", { class: "links" }, "With", ...state.match.map((text, i) => element("span", { class: "chip" }, element("code", {}, text),
      element("a", { href: to({ match: state.match.filter((_, j) => j !== i) }), "aria-label": `Without ${text}` }, "×")))) : "");
}

// draw shows what makes sense of a metric.
async function draw(node, kind, { number, by, selector, times, state }, signal, navigate) {
  const window = windowOf(times.end - times.start);
  const of = (kind) => expressionsOf(kind, { selector, series: number, by: by && labelName(by), fold: state.fold, window });
  if (kind === "info") {
    const [{ expr }] = of(kind);
    const { data } = await askInstant({ query: expr, limit: mostLines }, times.end, signal);
    node.replaceChildren(...expressions([expr], selector, state), results(data), data.result.length === 0 ? await newest(expr, signal, navigate) : "", ...(data.result.length === mostLines ? more({ series: number }) : []));
    return;
  }
  let asked = await askAll(of(kind), times, signal);
  let shown = kind;
  if (kind === "gauge" && asked.some(({ result }) => result.some((s) => s.histograms))) {
    shown = "native"; // nothing but its samples says so
    asked = await askAll(of(shown), times, signal);
  }
  const found = asked.flatMap(({ quantile, result }) => result.map((s) => (quantile ? { ...s, metric: { ...s.metric, quantile } } : s)));
  const heatmap = ["buckets", "native"].includes(shown) ? heatmapOf(shown, selector, window) : undefined;
  const { step } = stepsOf(times.start, times.end);
  const { values } = unitOf(await treeOf(asked[0].expr, signal));
  const last = found.length === 0 ? await newest(asked[0].expr, signal, navigate) : "";
  const drawing = graph([{ letter: "A", expr: asked[0].expr, result: found }], { ...times, step }, {
    mode: "lines", unit: unit(values), shown: { only: [], off: [] }, onShown: () => {},
    onZoom: (from, to) => navigate(between(from, to)), onZoomOut: () => navigate(moved(state, 0, 2, Math.ceil(Date.now() / 1000))),
  });
  node.replaceChildren(...expressions(asked.map(({ expr }) => expr), selector, state, heatmap),
    ...[...new Set(asked.flatMap(({ notes }) => notes))].map((text) => message("warning", text)), ...drawing.nodes, last,
    ...more(asked.reduce((most, one) => (one.series > most.series ? one : most))));
  drawing.draw?.(signal);
}

function more(answer) {
  return answer.series > mostLines ? [element("p", { class: "hint" }, `${shownOf(mostLines, answer)} series are shown: choose a label or a value.`)] : [];
}

// askAll returns what expressions have over a range.
function askAll(all, { start, end }, signal) {
  return Promise.all(all.map(async ({ expr, quantile }) => {
    const answer = await askRange({ query: expr, limit: mostLines }, stepsOf(start, end), end, signal);
    return { expr, quantile, result: answer.data.result, series: answer.series, isLeast: answer.isLeast, notes: notes(answer) };
  }));
}

// expressions shows what is drawn, and leads to it in the tab Query, and to the series of it in others.
function expressions(all, selector, state, heatmap) {
  const time = { range: state.range, end: state.end };
  return [element("p", { class: "links" },
    element("a", { href: link("query", { expr: all, view: "graph", ...time }) }, "Open in Query"),
    heatmap ? element("a", { href: link("query", { expr: heatmap, view: "graph", mode: "heatmap", ...time }) }, "Heatmap") : "",
    element("a", { href: link("latest", { filter: selector.includes("{") ? selector : `{__name__=${JSON.stringify(selector)}}` }) }, "Latest values"),
    element("a", { href: link("cardinality", { match: selector }) }, "Cardinality")),
  element("pre", {}, all.join("\n"))];
}

function labelList(labels, by, state, to) {
  const chosen = state.label || by;
  return element("div", { class: "labels" }, table("Labels: click one to split the graph by its values", [
    { title: "Label", kind: "text", value: (l) => l.name, cell: (l) => element("a", { href: to({ by: l.values > 1 ? l.name : state.by, label: l.name }), "aria-current": l.name === chosen && "true" }, l.name) },
    { title: "Values", kind: "number", value: (l) => l.values, cell: (l) => count(l.values) },
    { title: "Series", kind: "number", value: (l) => l.series, cell: (l) => count(l.series) },
  ], labels), by ? element("p", { class: "links" }, element("a", { href: to({ by: none, label: chosen }) }, "Do not split")) : "");
}

// listValues lists the values of a label.
async function listValues(node, label, labels, selector, state, signal, to) {
  const { data } = await ask("status/tsdb", { "match[]": selector, limit: mostValues, focusLabel: label, ...dateOf(state) }, { signal });
  const found = data.seriesCountByFocusLabelValue;
  const all = labels.find(({ name }) => name === label)?.values ?? found.length;
  const shown = all > found.length ? `, top ${count(found.length)} of ${count(all)} by series` : "";
  node.replaceChildren(table(`Values of ${label}${shown}: click one to show only its series`, [
    { title: "Value", kind: "text", value: (v) => v.name, cell: (v) => element("a", { href: to({ match: [...state.match, matcher(label, v.name)], label: "", by: state.by === label ? "" : state.by }) }, v.name) },
    { title: "Series", kind: "number", value: (v) => v.value, cell: (v) => count(v.value) },
  ], found));
}
