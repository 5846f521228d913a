// What makes so many series, from the index: of all, or of a selector; of an index period, and since another.

import { ask } from "../common/api.js";
import { element, message, tiles } from "../common/dom.js";
import { count, series, time } from "../common/format.js";
import { bytes } from "../common/quantities.js";
import { link, matcher, withMatcher } from "../common/selectors.js";
import { table } from "../common/table.js";

export async function show(state, result, signal) {
  const selector = state.match.trim();
  const asked = { limit: state.top, ...(selector && { "match[]": selector }), ...(state.focus && { focusLabel: state.focus }),
    ...(state.date && { date: state.date }), ...(state.compare && { compare: state.compare }) };
  const { data } = await ask("status/tsdb", asked, { signal });
  const head = data.headStats;
  const to = (changes) => link("cardinality", { ...state, ...changes });
  result.replaceChildren(
    ...(selector ? [selected(selector, data, state)] : []),
    tiles([selector ? "Series of the selector" : "Series", count(head.numSeries)], ["Label pairs", count(head.numLabelPairs)],
      ["Index period from", time(head.minTime / 1000)], ["to", time(head.maxTime / 1000)]),
    ...(head.numSeries === 0 ? [element("p", {}, `There are no series ${selector ? "of the selector " : ""}in ${state.date ? "the index period of that day" : "the current index period"}.`)] : []),
    ...(data.comparison ? compared(data, state) : []),
    ...(state.focus ? [focused(data, state, to)] : []),
    ...(head.numSeries > 0 ? [lists(data, state, to)] : []));
  if (head.numSeries > 0 && !selector && !state.date && !state.compare) {
    const { data: usage } = await ask("status/usage", {}, { signal });
    result.append(...used(usage));
  }
}

// used says how near limits are, and what no query reads, with the rule that would drop it.
function used({ from, unreadMetrics, unreadLabels, limits }) {
  const near = limits.length === 0 ? [] : [element("div", { class: "tables" }, list("Limits", "Limit", "Used", limits.map(({ name, used }) => ({ name, value: used })),
    { cell: ({ name }) => name, format: (part) => meter(part) }))];
  const unread = (caption, title, found, rule) => {
    if (found.length === 0) {
      return "";
    }
    const columns = [
      { title, kind: "text", cell: (r) => r.name, value: (r) => r.name },
      { title: "Series", kind: "number", cell: (r) => count(r.value), value: (r) => r.value },
      { title: "Rule that drops it", kind: "text", cell: (r) => element("code", {}, rule(r.name)), value: (r) => rule(r.name) },
    ];
    return element("div", { class: "list" }, table(caption, columns, found));
  };
  const quoted = (name) => `'${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("'", "''")}'`;
  const lists = [
    unread("Metrics that no query has read", "Metric", unreadMetrics, (name) => `- {source_labels: [__name__], regex: ${quoted(name)}, action: drop}`),
    unread("Labels that no query has matched or grouped by", "Label", unreadLabels, (name) => `- {regex: ${quoted(name)}, action: labeldrop}`),
  ].filter((of) => of !== "");
  if (lists.length === 0) {
    return near;
  }
  return [...near, element("details", { class: "unread" },
    element("summary", {}, `Not read by any query since ${time(from / 1000)}: ${count(unreadMetrics.length)} metrics, ${count(unreadLabels.length)} labels`),
    element("p", {}, "Queries of this adapter count, since its start and up to 30 days. The rules are for metric_relabel_configs of --limits.file."),
    element("div", { class: "tables" }, ...lists))];
}

// selected says which selector counts, and where else it can be looked at.
function selected(selector, data, state) {
  const [metric, another] = data.seriesCountByMetricName;
  return element("p", { class: "links" },
    element("code", {}, selector), " ",
    element("a", { href: link("query", { expr: selector, view: "graph" }) }, "Query"), " ",
    element("a", { href: link("latest", { filter: selector.includes("{") ? selector : `{__name__=${JSON.stringify(selector)}}` }) }, "Latest"), " ",
    metric && !another ? element("a", { href: link("explore", { metric: metric.name }) }, "Explore") : "", " ",
    element("a", { href: link("cardinality", { ...state, match: "", focus: "" }) }, "All series"));
}

function lists(data, state, to) {
  const head = data.headStats;
  const isAll = state.match.trim() === "";
  const add = (added) => to({ match: withMatcher(state.match, added) });
  const hasOne = data.seriesCountByMetricName.length === 1 && !isAll;
  const ofMetric = ({ name }) => element("a", { href: isAll ? to({ match: series({ __name__: name }) }) : add(matcher("__name__", name)) }, name);
  const ofPair = ({ name, value }) => {
    if (!isAll && value === head.numSeries) {
      return name; // all of them have it
    }
    const at = name.indexOf("="); // a label name cannot hold one in practice
    return element("a", { href: add(matcher(name.slice(0, at), name.slice(at + 1))) }, name);
  };
  const ofLabel = ({ name }) => element("a", { href: to({ focus: name }) }, name);
  const bySeries = new Map(data.seriesCountByLabelName.map(({ name, value }) => [name, value]));
  const share = { title: "Share of all series", of: ({ value }) => value / head.numSeries };
  return element("div", { class: "tables" },
    hasOne ? "" : list("Series by metric", "Metric", "Series", data.seriesCountByMetricName, { cell: ofMetric, share }),
    list("Series by label pair", "Pair", "Series", data.seriesCountByLabelValuePair, { cell: ofPair, share }),
    list("Values by label", "Label", "Values", data.labelValueCountByLabelName, { cell: ofLabel, share: { title: "Share of all pairs", of: ({ value }) => value / head.numLabelPairs },
      more: [{ title: "Series", kind: "number", cell: ({ name }) => (bySeries.has(name) ? count(bySeries.get(name)) : "–"), value: ({ name }) => bySeries.get(name) ?? NaN }] }),
    list("Bytes of values by label", "Label", "Bytes", data.memoryInBytesByLabelName, { cell: ofLabel, format: bytes }));
}

// focused lists the values of the label of the state.
function focused(data, state, to) {
  const cell = ({ name }) => element("a", { href: to({ match: withMatcher(state.match, matcher(state.focus, name)), focus: "" }) }, name);
  const of = data.labelValueCountByLabelName.find(({ name }) => name === state.focus);
  const found = data.seriesCountByFocusLabelValue;
  if (found.length === 0) {
    return element("p", {}, "No series has the label ", element("code", {}, state.focus), ".");
  }
  return list(`Series by value of ${state.focus}${of && of.value > found.length ? `, top ${count(found.length)} of ${count(of.value)}` : ""}`, "Value", "Series", found,
    { cell, share: { title: "Share of the series", of: ({ value }) => value / data.headStats.numSeries } });
}

// list is one, which can be saved.
function list(caption, title, what, rows, { cell, share, more = [], format = count }) {
  const columns = [
    { title, kind: "text", cell, value: (r) => r.name },
    { title: what, kind: "number", cell: (r) => format(r.value), value: (r) => r.value },
    ...(share ? [{ title: share.title, cell: (r) => meter(share.of(r)), value: share.of }] : []),
    ...more,
  ];
  return element("div", { class: "list" }, table(caption, columns, rows));
}

// compared shows how the counts differ from those of another period.
function compared(data, state) {
  const { headStats: before, ...kinds } = data.comparison;
  const names = { seriesCountByMetricName: ["Series by metric", "Metric"], labelValueCountByLabelName: ["Values by label", "Label"],
    seriesCountByLabelName: ["Series by label", "Label"], seriesCountByLabelValuePair: ["Series by label pair", "Pair"],
    seriesCountByFocusLabelValue: [`Series by value of ${state.focus}`, "Value"] };
  return [
    element("h2", {}, `Compared with the index period from ${time(before.minTime / 1000)} to ${time(before.maxTime / 1000)}`),
    tiles(["Series before", count(before.numSeries)], ["Difference", signed(data.headStats.numSeries - before.numSeries)],
      ["Label pairs before", count(before.numLabelPairs)], ["Difference of pairs", signed(data.headStats.numLabelPairs - before.numLabelPairs)]),
    element("div", { class: "tables" }, ...Object.keys(names).filter((kind) => kinds[kind]).map((kind) => changes(...names[kind], kinds[kind]))),
    element("h2", {}, "This period"),
  ];
}

function changes(caption, title, { new: made, gone, grown, shrunk, largest }) {
  if (largest.length === 0) {
    return element("div", { class: "list" }, message("same", `${caption}: no change.`));
  }
  const columns = [
    { title, kind: "text", cell: (c) => c.name, value: (c) => c.name },
    { title: "Before", kind: "number", cell: (c) => count(c.before), value: (c) => c.before },
    { title: "This period", kind: "number", cell: (c) => count(c.value), value: (c) => c.value },
    { title: "Difference", kind: "number", cell: (c) => signed(c.value - c.before), value: (c) => c.value - c.before },
    { title: "Change", kind: "time", cell: changeOf, value: changeOf },
  ];
  const full = `${caption}: ${count(made)} new, ${count(gone)} gone, ${count(grown)} grown, ${count(shrunk)} shrunk`;
  return element("div", { class: "list" }, table(full, columns, largest));
}

function changeOf({ before, value }) {
  return before === 0 ? "new" : value === 0 ? "gone" : value > before ? "grown" : "shrunk";
}

function signed(n) {
  return n > 0 ? `+${count(n)}` : n < 0 ? `−${count(-n)}` : "0";
}

// meter shows a part of 1.
function meter(part) {
  const percent = 100 * part, digits = percent < 1 ? { maximumFractionDigits: 2 } : { maximumSignificantDigits: 3 };
  const text = percent > 0 && percent < 0.01 ? "< 0.01%" : `${percent.toLocaleString("en", digits)}%`;
  return element("div", { class: "share" }, element("meter", { min: 0, max: 1, value: part, "aria-hidden": true }), text);
}
