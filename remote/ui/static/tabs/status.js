// What is wrong with an adapter, what it does, and what it is.

import { ask } from "../common/api.js";
import { element, message, selecting, tiles } from "../common/dom.js";
import { count, sample, time } from "../common/format.js";
import { bytes, finerFirst, roughDuration } from "../common/quantities.js";
import { configuration } from "../common/senderconfig.js";
import { sparkline } from "../common/sparkline.js";
import { table } from "../common/table.js";
import { activeQueries } from "./activequeries.js";
import { findings, ruleMetrics, rules } from "./findings.js";
import { atTimes, fromQuery, fromStatus, Snapshot } from "./snapshot.js";
import { expressionOf, groups } from "./statuspanels.js";
import { transfers } from "./transfers.js";

// How often the numbers and the graphs are asked for, in milliseconds.
const interval = 5000, graphsInterval = 30_000;

const hour = 3600, day = 86_400; // in seconds

// points is how many a small graph has, about.
const points = 80;

// stored counts what is stored, from writers and of the adapter's own.
const stored = "adapter_engine_appended_samples_total";

export async function show(state, result, signal) {
  const page = { found: element("div", {}), graphs: element("div", {}), facts: element("div", {}) };
  const { data: first } = await ask("status/adapter", {}, { signal });
  await chooseInstance(first, state, signal);
  const adapter = { job: first.selfScrape.job, instance: state.instance || first.selfScrape.instance };
  const isOther = adapter.instance !== first.selfScrape.instance;
  const queries = activeQueries(signal), imports = transfers(signal);
  let last = first, metrics;
  const update = async (status) => {
    metrics = isOther ? await storedMetrics(adapter, Date.now() / 1000, undefined, signal) : fromStatus(status.metrics);
    const rates = { now: fromStatus(status.metrics), before: fromStatus(last.metrics), seconds: seconds(last.now, status.now) };
    await showFindings(page.found, { status, adapter, now: metrics, isOther }, signal);
    await Promise.all([queries.paint(status), imports.paint(status)]);
    if (!page.facts.contains(document.activeElement)) { // what has the focus stays
      page.facts.replaceChildren(...factsOf(status, rates));
    }
    last = status;
  };
  await update(first);
  result.replaceChildren(page.found, queries.node, imports.node, page.graphs, page.facts);
  const hasHistory = isOther || first.selfScrape.intervalSeconds > 0;
  const drawGraphs = () => showGraphs(page.graphs, { state, adapter, metrics, every: last.selfScrape.intervalSeconds, hasHistory }, signal);
  await drawGraphs();
  const failed = (err) => { // the numbers stay; the next time may go well
    if (!signal.aborted && !result.querySelector("[role=alert]")) {
      result.prepend(message("error", `${err.message} The values shown are from ${time(new Date(last.now) / 1000)}.`));
    }
  };
  const every = (milliseconds, run) => {
    let isRunning = false;
    const timer = setInterval(() => {
      if (!document.hidden && !selecting(result) && !isRunning) {
        isRunning = true;
        run().finally(() => { isRunning = false; }).then(() => result.querySelector(":scope > [role=alert]")?.remove(), failed);
      }
    }, milliseconds);
    signal.addEventListener("abort", () => clearInterval(timer));
  };
  every(interval, async () => update((await ask("status/adapter", {}, { signal })).data));
  every(graphsInterval, async () => page.graphs.contains(document.activeElement) || drawGraphs());
}

function seconds(from, to) {
  return (new Date(to) - new Date(from)) / 1000;
}

// chooseInstance fills the choice of adapters that store their metrics here.
async function chooseInstance({ selfScrape: { job, instance } }, state, signal) {
  const { data: { result } } = await ask("query", { query: `count by (instance) (last_over_time(adapter_build_info{job=${JSON.stringify(job)}}[1h]))` }, { signal, post: true });
  const select = document.querySelector("#status select[name=instance]");
  const others = result.map(({ metric }) => metric.instance).filter((name) => name !== instance).sort();
  select.replaceChildren(element("option", { value: "" }, `${instance} (this one)`), ...[...new Set([...others, ...(state.instance ? [state.instance] : [])])].map((name) =>
    element("option", { value: name }, name)));
  select.value = state.instance;
  select.closest("label").hidden = select.options.length < 2;
}

// storedMetrics returns the metrics of an adapter at a time, in seconds, as they are stored: those of names, or all.
async function storedMetrics({ job, instance }, at, names, signal) {
  const name = names ? names.join("|") : "(adapter|process)_.+";
  const { data } = await ask("query", { query: `{__name__=~"${name}",job=${JSON.stringify(job)},instance=${JSON.stringify(instance)}}`, time: at }, { signal, post: true });
  return fromQuery(data.result);
}

// showFindings shows what is wrong.
async function showFindings(node, { status, adapter, now, isOther }, signal) {
  const at = Date.now() / 1000;
  const started = now.find(({ name }) => name === "process_start_time_seconds")?.value ?? (isOther ? 0 : new Date(status.started) / 1000);
  const isYoung = at - started < hour;
  const earlier = isYoung ? [] : await storedMetrics(adapter, at - hour, ruleMetrics, signal);
  const found = [
    ...findings(new Snapshot(now, earlier), isYoung || earlier.length === 0 ? "since the start" : "in the last hour"),
    ...(isOther ? [] : otherFindings(status)),
  ];
  const key = JSON.stringify(found.map(({ name, text }) => [name, text]));
  if (node.dataset.key === key) {
    return; // nothing is said twice
  }
  const since = await sinceWhen(found, adapter, at, signal);
  node.dataset.key = key;
  node.replaceChildren(element("h2", {}, "Findings"), found.length === 0
    ? element("p", { class: "well", role: "status" }, "No problems found.")
    : element("ul", { class: "findings", "aria-label": "Findings" }, ...found.map((f) => finding(f, since.get(f.name)))));
}

// otherFindings are those of what is no metric.
function otherFindings({ tables }) {
  const families = tables.flatMap((t) => t.families.filter((f) => f.wantedMaxAgeSeconds !== undefined).map((f) => `${t.name}:${f.name}`));
  return families.length === 0 ? [] : [{
    name: "policies differ", level: "warning", doc: "bigtable.md#garbage-collection",
    text: `Bigtable keeps ${families.join(", ")} for a different time than the flags set.`, todo: "Run adapter schema apply with the same flags.",
  }];
}

// sinceWhen returns since when rules hold, in seconds, as far as the stored metrics of a day tell.
async function sinceWhen(found, { job, instance }, at, signal) {
  const names = [...new Set(found.flatMap(({ metrics = [] }) => metrics))];
  if (names.length === 0) {
    return new Map();
  }
  const step = 300, end = Math.floor(at / step) * step;
  const { data } = await ask("query_range", {
    query: `{__name__=~"${names.join("|")}",job=${JSON.stringify(job)},instance=${JSON.stringify(instance)}}`, start: end - day - hour, end, step,
  }, { signal, post: true });
  const metrics = atTimes(data.result);
  const since = new Map();
  for (const { name } of found.filter((f) => f.metrics)) {
    const { find } = rules.find((rule) => rule.name === name);
    for (let t = end; t >= end - day && metrics.has(t) && find(new Snapshot(metrics.get(t), metrics.get(t - hour))); t -= step) {
      since.set(name, t);
    }
  }
  return since;
}

function finding({ level, text, todo, doc }, since) {
  const names = { error: "Error", warning: "Warning", note: "Note" };
  return element("li", { class: `finding ${level}` },
    element("p", {}, element("strong", {}, names[level]), " ", text, since ? ` Since about ${time(since)}.` : ""),
    element("p", { class: "todo" }, `${todo} `, "See ", element("code", {}, `docs/${doc}`), "."));
}

// showGraphs draws the small graphs of an adapter.
async function showGraphs(node, { state, adapter, metrics, every, hasHistory }, signal) {
  if (!hasHistory) {
    node.replaceChildren(message("warning", "The adapter does not store its own metrics (--self-scrape-interval is 0s), so there are no graphs. The current values are below."),
      ...retention(new Snapshot(metrics)), ...await senders(signal));
    return;
  }
  const long = Number(state.span), end = Math.floor(Date.now() / 1000);
  const step = Math.max(Math.ceil(long / points), 1);
  const window = Math.ceil(Math.max(60, 4 * every, 2 * step));
  const times = { start: end - long, end, step };
  const known = new Set(metrics.map(({ name }) => name));
  const shown = groups.map(({ title, panels }) => ({ title, panels: panels.filter(({ metric }) => known.has(metric)) })).filter(({ panels }) => panels.length > 0);
  const drawn = await Promise.all(shown.map(async ({ title, panels }) => element("section", { class: "group", "aria-label": title }, element("h2", {}, title),
    element("div", { class: "panels" }, ...await Promise.all(panels.map((p) => panelOf(p, adapter, window, times, signal)))))));
  node.replaceChildren(...drawn, ...retention(new Snapshot(metrics)), ...await senders(signal));
}

async function panelOf({ title, sentence, lines }, adapter, window, times, signal) {
  const drawn = await Promise.all(lines.map(async (line) => {
    const { data: { result } } = await ask("query_range", { query: expressionOf(line, adapter, window), ...times }, { signal, post: true });
    if (line.empty === undefined) {
      return [spark(line.name, line.unit, result[0], times)];
    }
    return result.length === 0 ? [element("p", { class: "facts" }, line.empty)] : result.map((s) => spark(s.metric[line.name], line.unit, s, times));
  }));
  return element("div", { class: "panel" }, element("h3", {}, title), ...drawn.flat(), element("p", { class: "facts" }, sentence));
}

// spark shows a series from start to end, also where it has no values.
function spark(label, unit, found, { start, end, step }) {
  const values = new Map((found?.values ?? []).map(([t, text]) => [Math.round((t - start) / step), Number(text)]));
  const steps = Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, i) => i);
  return sparkline({ times: steps.map((i) => start + i * step), values: steps.map((i) => (Number.isFinite(values.get(i)) ? values.get(i) : null)), unit, label });
}

// retention says how long everything is kept, and what goes next.
function retention(s) {
  const size = s.sum("adapter_retention_limit_bytes");
  const lines = s.list("adapter_retention_limit_seconds").map((m) => m.labels.resolution).sort(finerFirst).map((resolution) => {
    const name = resolution === "raw" ? "Samples" : `Rollups of ${resolution}`;
    const age = s.sum("adapter_retention_limit_seconds", { resolution }), next = s.sum("adapter_retention_next_cut_timestamp_seconds", { resolution });
    return age === 0 ? `${name} are kept forever.`
      : `${name} are kept for ${roughDuration(age)}. The day up to ${time(next - age)} is deleted at ${time(next)} or soon after.`;
  });
  const cut = s.sum("adapter_retention_cut_timestamp_seconds");
  return lines.length === 0 ? [] : [element("section", { class: "group", "aria-label": "Retention" }, element("h2", {}, "Retention"), element("ul", { class: "plain" },
    ...[...lines, ...(size > 0 ? [`The oldest days are deleted while the database is larger than ${bytes(size)}.`] : []),
      ...(cut > 0 ? [`Samples before ${time(cut)} are not shown.`] : [])].map((text) => element("li", {}, text))))];
}

// silent is after how long without a sample a target is said to be silent, in seconds.
const silent = 300;

// senders shows which jobs have sent lately, by their metric up, and which replicas are elected.
async function senders(signal) {
  const [{ data: up }, { data: elected }] = await Promise.all([
    ask("current", { "match[]": "up", limit: 10_000 }, { signal }), ask("current", { "match[]": "adapter_ha_elected_replica", limit: 1000 }, { signal })]);
  const now = Date.now() / 1000;
  const targets = up.samples.map((s) => ({ job: s.metric.job ?? "", instance: s.metric.instance ?? "", ...sample(s) })).filter(({ t }) => now - t < day);
  const jobs = [...Map.groupBy(targets, ({ job }) => job)].map(([job, of]) => ({
    job, all: of.length, down: of.filter(({ number }) => number === 0), silent: of.filter(({ t }) => now - t > silent), last: Math.max(...of.map(({ t }) => t)),
  }));
  const names = (of) => (of.length === 0 ? "–" : `${count(of.length)}: ${of.slice(0, 5).map(({ instance }) => instance).join(", ")}${of.length > 5 ? " …" : ""}`);
  const replicas = elected.samples.filter((s) => sample(s).number === 1);
  return [element("section", { class: "group", "aria-label": "Senders" }, element("h2", {}, "Senders"),
    ...(jobs.length === 0 ? [element("p", { class: "facts" }, "No samples of the metric up in the last day: no Prometheus sends to this store, or it drops up.")]
      : [table("Targets of the last day, from the metric up", [
        { title: "Job", kind: "text", cell: (j) => j.job, value: (j) => j.job },
        { title: "Targets", kind: "number", cell: (j) => count(j.all), value: (j) => j.all },
        { title: "Down", kind: "text", cell: (j) => names(j.down), value: (j) => j.down.length },
        { title: `Silent for ${roughDuration(silent)}`, kind: "text", cell: (j) => names(j.silent), value: (j) => j.silent.length },
        { title: "Last sample", kind: "number", cell: (j) => `${roughDuration(now - j.last)} ago`, value: (j) => now - j.last },
      ], jobs)]),
    ...(replicas.length === 0 ? [] : [table("Elected replicas", [
      { title: "Cluster", kind: "text", cell: (s) => s.metric.cluster, value: (s) => s.metric.cluster },
      { title: "Replica", kind: "text", cell: (s) => s.metric.replica, value: (s) => s.metric.replica },
    ], replicas)]))];
}

function factsOf(now, { now: metrics, before, seconds }) {
  const s = new Snapshot(metrics, before);
  const rate = (name, labels) => (seconds > 0 ? `${count(s.growth(name, labels) / seconds)}/s` : "…");
  const size = (name) => (s.has(name) ? bytes(s.sum(name)) : "–");
  return [
    ...(now.selfScrape.intervalSeconds > 0 ? [] : [element("h2", {}, "Current rates"), tiles(
      ["Samples stored", rate(stored, { result: "success" })],
      ["Write and read requests", rate("adapter_http_requests_total")],
      ["Queries to the HTTP API", rate("adapter_api_requests_total")],
      ["Series read", rate("adapter_engine_selected_series_total")],
      ["Samples rejected", rate("adapter_write_rejected_total")],
      ["Writes failed", rate("adapter_write_failed_samples_total")])]),
    element("h2", {}, "Sizes"),
    tiles(
      ["Indexed series and periods", count(s.sum("adapter_index_known_series"))],
      ["Last values not yet written", count(s.sum("adapter_current_pending_series"))],
      ["Open chunks", size("adapter_buffer_open_bytes")],
      ["Database on disk", size("adapter_pebble_disk_bytes")],
      ["Log on disk", size("adapter_buffer_log_size_bytes")],
      ["Log segments", s.has("adapter_buffer_log_segments") ? count(s.sum("adapter_buffer_log_segments")) : "–"],
      ["Memtables", size("adapter_pebble_memtable_bytes")],
      ["Process memory", size("process_resident_memory_bytes")],
      ["Samples stored since start", count(s.sum(stored, { result: "success" }))]),
    ...failingRows(now),
    element("h2", {}, "Adapter"),
    table("Properties", [{ title: "Property", cell: ([what]) => what }, { title: "Value", kind: "text", cell: ([, value]) => value }], [
      ["Version", now.version || "unknown"],
      ["Started", `${time(new Date(now.started) / 1000)}, ${roughDuration((new Date(now.now) - new Date(now.started)) / 1000)} ago`],
      ["Backend", `${now.backend}: ${now.location}`],
      ...(now.directoryFormat ? [["Directory format", `version ${now.directoryFormat} (file FORMAT)`]] : []),
      ["Table format", `version ${now.format}`],
      ["Resource labels", now.resourceLabels.join(", ") || "none"],
    ]),
    element("h2", {}, "Tables"),
    table("Retention of cells", [
      { title: "Table", kind: "text", cell: (t) => t.name },
      { title: "Column family", kind: "text", cell: (t) => t.family },
      { title: "Kept for", cell: (t) => (t.seconds ? roughDuration(t.seconds) : "forever") },
    ], now.tables.flatMap((t) => t.families.map((f) => ({ name: t.name, family: f.name, seconds: f.maxAgeSeconds })))),
    element("h2", {}, "Configuration of Prometheus"),
    element("pre", {}, configuration()),
    element("p", {}, element("a", { href: "metrics" }, "All metrics"), " · ", element("a", { href: "debug/pprof/" }, "Profiles")),
  ];
}

// failingRows lists the rows that the store does not take.
function failingRows({ failingRows: rows }) {
  return rows.length === 0 ? [] : [element("h2", {}, "Rows that the store rejects"), table("The first 100", [
    { title: "Key", kind: "key", cell: (r) => r.key, value: (r) => r.key },
    { title: "Since", kind: "time", cell: (r) => time(new Date(r.since) / 1000) },
    { title: "Retried", cell: (r) => (r.refused ? "at the next start" : "yes") },
    { title: "Error", kind: "text", cell: (r) => r.error },
  ], rows)];
}
