// The alerts that are pending or firing, and the rules with what has become of them.

import { ask } from "../common/api.js";
import { element, message, selecting } from "../common/dom.js";
import { count, number, series, time } from "../common/format.js";
import { humanizeDuration, roughDuration } from "../common/quantities.js";
import { chosen, update } from "../common/rows.js";
import { link } from "../common/selectors.js";
import { table } from "../common/table.js";
import { refresh, retell } from "../query/refresh.js";

// never is the time of an evaluation that has not been.
const never = "0001-01-01T00:00:00Z";

export async function show(state, result, signal) {
  const problems = element("div", {}), facts = element("p", { class: "facts" }), failures = element("div", {});
  const unsent = element("p", { class: "facts" });
  const active = part("Active alerts", "No alert is pending or firing."), all = part("Rules", "No rule matches.");
  const paint = async () => {
    const [{ data }, { data: { activeAlertmanagers } }] = await Promise.all([ask("rules", {}, { signal }), ask("alertmanagers", {}, { signal })]);
    const rules = data.groups.flatMap((group) => group.rules.map((rule) => ({ ...rule, group })));
    if (rules.length === 0) {
      result.replaceChildren(problems, element("p", {}, "This adapter evaluates no rules. ", element("code", {}, "--rules.file"), " names files of them, in Prometheus' format."));
      return;
    }
    const alerts = rules.flatMap((rule) => (rule.alerts ?? []).map((alert) => ({ ...alert, rule })));
    const failing = rules.filter(isFailing);
    facts.textContent = [many(data.groups.length, "group"), many(rules.length, "rule"), `${count(failing.length)} failing`,
      ...["firing", "pending"].map((kind) => `${count(alerts.filter((alert) => alert.state === kind).length)} ${kind}`)].join(", ");
    const isUnsent = activeAlertmanagers.length === 0 && rules.some(({ type }) => type === "alerting");
    unsent.replaceChildren(...(isUnsent ? ["No Alertmanager gets these alerts. ", element("code", {}, "--alertmanager.url"), " names one."] : []));
    retell(failures, failing.slice(0, 5).map((rule) => message("warning", `${rule.name} fails: ${rule.lastError}`)));
    active.paint(alertColumns, alerts.filter((alert) => matches(state, alert.rule)).sort((a, b) => (a.state < b.state ? -1 : a.state > b.state)));
    all.paint(ruleColumns(), rules.filter((rule) => matches(state, rule)));
    if (!facts.isConnected) {
      result.replaceChildren(problems, facts, failures, active.node, unsent, all.node);
    }
  };
  await paint();
  refresh(state.refresh, paint, () => selecting(result), problems, signal);
}

function isFailing({ health }) {
  return health === "err";
}

function many(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}

// matches says whether a rule is asked for.
function matches({ filter, kind }, rule) {
  const text = `${rule.name} ${rule.group.name} ${rule.group.file} ${rule.query}`.toLowerCase();
  return text.includes(filter.trim().toLowerCase()) && (kind === "" || kind === rule.type || kind === "failing" && isFailing(rule));
}

// part returns a node with a title, and paint(columns, rows), which shows a table there, or a sentence if there are no rows.
function part(title, empty) {
  const node = element("div", {});
  let shown;
  return { node, paint: (columns, rows) => {
    if (rows.length > 0 && update(shown, columns, rows)) {
      return;
    }
    shown = rows.length === 0 ? undefined : table(undefined, columns, rows, undefined, { chosen: chosen(shown) });
    node.replaceChildren(element("h2", {}, title), shown ?? element("p", { class: "facts" }, empty));
  } };
}

function graphOf(expr) {
  return link("query", { expr, view: "graph" });
}

const alertColumns = [
  { title: "Alert", kind: "text", cell: (a) => element("a", { href: graphOf(a.rule.query), title: a.rule.query }, nameOf(a)), value: nameOf },
  { title: "State", kind: "state", cell: (a) => a.state, value: (a) => a.state },
  { title: "Since", kind: "time", cell: (a) => time(Date.parse(a.activeAt) / 1000), value: (a) => a.activeAt },
  { title: "Value", kind: "number", cell: (a) => count(number(a.value)), value: (a) => number(a.value) },
  { title: "Summary", kind: "summary", cell: summaryOf, value: summaryOf },
];

function nameOf({ labels: { alertname, ...rest } }) {
  return series({ __name__: alertname, ...rest });
}

function summaryOf({ annotations }) {
  return annotations.summary ?? annotations.description ?? annotations.message ?? "";
}

function ruleColumns() {
  const now = Date.now() / 1000;
  const age = ({ lastEvaluation }) => (lastEvaluation === never ? NaN : now - Date.parse(lastEvaluation) / 1000);
  const recorded = ({ type, name, labels }) => series(type === "recording" ? { __name__: name, ...labels } : { __name__: "ALERTS", alertname: name });
  const state = (rule) => (isFailing(rule) ? "failing" : rule.state ?? rule.health);
  const group = ({ group: { name, file } }) => `${name} (${file})`;
  return [
    { title: "Rule", kind: "text", cell: (rule) => element("a", { href: graphOf(recorded(rule)), title: "What it has recorded" }, rule.name), value: (rule) => rule.name },
    { title: "Expression", kind: "text", cell: (rule) => element("a", { href: graphOf(rule.query) }, rule.query), value: (rule) => rule.query },
    { title: "State", kind: "state", cell: (rule) => element("span", { title: rule.lastError }, state(rule)), value: state },
    { title: "Evaluated", kind: "number", cell: (rule) => (Number.isNaN(age(rule)) ? "never" : `${roughDuration(age(rule))} ago`), value: age },
    { title: "Took", kind: "number", cell: (rule) => humanizeDuration(rule.evaluationTime), value: (rule) => rule.evaluationTime },
    { title: "Group", kind: "summary", cell: (rule) => element("span", { title: group(rule) }, rule.group.name), value: group },
  ];
}
