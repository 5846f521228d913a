// What changed in the time of a graph: the series that differ most from as long before, of an expression, of its metrics or of its job.

import { ask, notes } from "../common/api.js";
import { element, message } from "../common/dom.js";
import { count, number, series, time } from "../common/format.js";
import { kindOf } from "../common/metrickinds.js";
import { formatDuration } from "../common/quantities.js";
import { link, matcher } from "../common/selectors.js";
import { miniature } from "../common/sparkline.js";
import { table } from "../common/table.js";
import { changeText } from "./comparison.js";
import { matchersIn, namesIn, treeOf } from "./syntaxtrees.js";
import { unit } from "./units.js";

// most is how many series are listed, mostMetrics how many metrics of a job are compared, and atOnce how many of them at the same time.
const most = 20, mostMetrics = 300, atOnce = 4;

// showChanges shows in a node what changed in a graph from start to end, of the expression with the letter that state.changed says. asked are the answers
// of the graph.
export async function showChanges(node, state, asked, { start, end }, signal, navigate) {
  const one = asked.find(({ letter, error }) => letter === state.changed && !error);
  if (!one) {
    return;
  }
  const scopes = await scopesOf(one, end - start, signal);
  const scope = scopes.find(({ key }) => key === state.scope) ?? scopes[0];
  const progress = element("p", { class: "facts", role: "status" }, "Comparing…");
  const body = element("div", {}, progress);
  node.replaceChildren(
    element("h2", {}, "What changed"),
    element("div", { class: "controls" },
      element("label", {}, "In ", element("select", { onchange: ({ target }) => navigate({ scope: target.value }).then(() => document.querySelector(".changes select")?.focus()) },
        ...scopes.map(({ key, title }) => element("option", { value: key, selected: key === scope.key }, title)))),
      element("button", { type: "button", onclick: () => navigate({ changed: "", scope: "" }) }, "Close")), body);
  const exprs = await scope.exprs();
  const found = [];
  let done = 0;
  const rest = exprs.slice(0, mostMetrics).values();
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (const { expr, name, of } of rest) {
      try {
        const answer = await ask("changes", { query: expr, start, end, limit: most, ...(state.res && { max_source_resolution: state.res }) }, { signal, post: true });
        found.push({ name, of, answer });
      } catch (error) {
        if (signal.aborted || exprs.length === 1) {
          throw error;
        }
        found.push({ name, error });
      }
      progress.textContent = exprs.length > 1 ? `Comparing… ${count(++done)} of ${count(Math.min(exprs.length, mostMetrics))} metrics` : "";
    }
  }));
  body.replaceChildren(...listOf(found, exprs.length, state, scope, navigate));
}

// scopesOf returns what may be compared beside an expression: each has a key, a title and exprs(), the expressions: those of a metric have its name, and of(selector), the
// same of other series.
async function scopesOf({ expr, answer }, span, signal) {
  const tree = await treeOf(expr, signal);
  const names = [...new Set(namesIn(tree).filter(Boolean))].slice(0, 3);
  const values = (found) => [...new Set(found.filter(Boolean))];
  const shown = values(answer.data.result.map(({ metric }) => metric.job));
  const jobs = shown.length > 0 ? shown : values(matchersIn(tree).flat().filter(({ name, type }) => name === "job" && type === "=").map(({ value }) => value));
  const ofJob = async ([job]) => {
    const { data } = await ask("label/__name__/values", { "match[]": `{${matcher("job", job)}}`, limit: mostMetrics * 4 }, { signal });
    return data.filter((name) => !["buckets", "info"].includes(kindOf({ name }))).map((name) => comparedOf(series({ __name__: name, job }), { name }, span));
  };
  const ofMetric = async (name) => {
    const { data } = await ask("metric_names", { search: name, limit: 1 }, { signal });
    return [comparedOf(series({ __name__: name }), data.names.find((known) => known.name === name) ?? { name }, span)];
  };
  return [
    { key: "", title: "This expression", exprs: async () => [{ expr }] },
    ...names.map((name) => ({ key: name, title: `All of ${name}`, exprs: () => ofMetric(name) })),
    ...(jobs.length === 1 ? [{ key: "job", title: `All metrics of job ${jobs[0]}`, exprs: () => ofJob(jobs) }] : []),
  ];
}

// comparedOf returns what is compared of a metric: the rate of what counts, over the time between two points.
function comparedOf(selector, metric, span) {
  const step = span / 30, bucket = step >= 3600 ? 3600 : 300;
  const window = formatDuration(Math.max(1, Math.floor(step / bucket)) * bucket);
  const of = (selected) => (["counter", "buckets"].includes(kindOf(metric)) ? `rate(${selected}[${window}])` : selected);
  return { name: metric.name, expr: of(selector), of };
}

// listOf returns what is shown of comparisons.
function listOf(found, metrics, state, scope, navigate) {
  const answers = found.filter(({ error }) => !error);
  const rows = ["shifted", "appeared", "gone"].flatMap((kind) => answers.flatMap(({ name, of, answer: { data } }) =>
    (kind === "shifted" ? data.shifted : data[kind].series).map((change) => ({ ...change, kind, of, title: series(name ? { __name__: name, ...change.metric } : change.metric), data }))));
  const shifted = rows.filter(({ kind }) => kind === "shifted").sort((a, b) => b.score - a.score).slice(0, most);
  const others = ["appeared", "gone"].map((kind) => rows.filter((row) => row.kind === kind).slice(0, most));
  const listed = [...shifted, ...others.flat()];
  const sum = (of) => answers.reduce((all, { answer }) => all + of(answer.data), 0);
  const failed = found.filter(({ error }) => error);
  const said = [
    ...(failed.length > 0 ? [message("warning", `${count(failed.length)} of the metrics could not be compared, the first is ${failed[0].name}: ${failed[0].error.message}`)] : []),
    ...(metrics > mostMetrics ? [message("warning", `The job has ${count(metrics)} metrics. The first ${count(mostMetrics)} are compared.`)] : []),
    ...[...new Set(answers.flatMap(({ answer }) => notes(answer)))].map((text) => message("warning", text)),
  ];
  if (answers.length === 0) {
    return said;
  }
  const { before, start, end, statistic } = answers[0].answer.data;
  const facts = [`${count(sum(({ compared }) => compared))} series compared`, ...(["appeared", "gone"].map((kind) => [kind, sum((data) => data[kind].count)]).filter(([, n]) => n > 0).map(([kind, n]) => `${count(n)} ${kind}`))];
  const histograms = sum((data) => data.histograms);
  said.push(element("p", { class: "facts", title: `Ranked by the ${statistic}.` },
    `${facts.join(", ")}${histograms > 0 ? `, ${count(histograms)} histograms left out` : ""}. From ${time(start)} to ${time(end)}, compared with the same length of time from ${time(before)} on. Ranked by the shift of the mean over its deviation.`));
  if (listed.length === 0) {
    return [...said, element("p", {}, "No series differs from before.")];
  }
  const { text } = unit(state.unit);
  const mean = (title, of) => ({ title, kind: "number", cell: (row) => (of(row) ? text(of(row).mean) : ""), value: (row) => of(row)?.mean ?? NaN });
  const title = (row) => (scope.key === ""
    ? element("button", { type: "button", class: "line", title: "Show only this line", onclick: () => navigate({ only: [row.title], off: [] }) }, row.title)
    : element("a", { href: link("query", { expr: row.of(row.title), view: "graph", range: state.range, end: state.end }) }, row.title));
  return [...said, table(undefined, [
    { title: "Series", kind: "text", value: (row) => row.title, cell: title },
    { title: "Graph", kind: "text mini", text: false, cell: graphOf },
    mean("Before", (row) => row.before), mean("Now", (row) => row.now),
    { title: "Change", kind: "number", cell: (row) => (row.kind === "shifted" ? changeText(row.now.mean, row.before.mean) : row.kind) },
    { title: "Shift", kind: "number", cell: (row) => (row.score ? count(row.score) : ""), value: (row) => row.score ?? NaN },
  ], listed)];
}

// graphOf draws the values of both spans of a series, with a line between them.
function graphOf({ values, title, data: { before, start, end } }) {
  return miniature({ times: values.map(([t]) => t), values: values.map(([, v]) => number(v)), label: `${title}, before and after ${time(start)}`, from: before, to: end, mark: start });
}
