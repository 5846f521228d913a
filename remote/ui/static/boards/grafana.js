// Dashboards of Grafana as boards: the panels that are graphs, values and tables of PromQL. What is not is named.

const kinds = { timeseries: "graph", graph: "graph", heatmap: "graph", stat: "stat", singlestat: "stat", gauge: "stat", bargauge: "stat", table: "table", "table-old": "table" };

// units are those of Grafana that graphs of the page have, too.
const units = {
  bytes: "bytes", decbytes: "bytes", Bps: "bytes/s", binBps: "bytes/s", bps: "bits/s", binbps: "bits/s", s: "seconds", percent: "percent", percentunit: "ratio", reqps: "/s", ops: "/s", cps: "/s",
  rps: "/s", wps: "/s", iops: "/s", eps: "/s", pps: "/s", mps: "/s", bits: "bits", decbits: "bits", celsius: "celsius", volt: "volts", amp: "amperes", watt: "watts", joule: "joules", hertz: "hertz", dateTimeAsIso: "timestamp",
};

// isDashboard says whether a JSON value is a dashboard of Grafana, which an export may have wrapped.
export function isDashboard(json) {
  const { panels, rows, schemaVersion } = json.dashboard ?? json;
  return Array.isArray(rows) || Array.isArray(panels) && (schemaVersion !== undefined || panels.some(({ targets, gridPos }) => targets || gridPos));
}

// boardOf returns the board of a dashboard, and what of it is left out, as sentences.
export function boardOf(json) {
  const dashboard = json.dashboard ?? json;
  const left = [];
  const listed = [...(dashboard.rows ?? []).flatMap(({ panels }) => panels ?? []), ...(dashboard.panels ?? [])]; // early dashboards have rows
  const all = listed.flatMap((panel) => (panel.type === "row" ? panel.panels ?? [] : [panel]));
  const panels = all.map((panel, i) => panelOf(panel, `"${panel.title || `panel ${i + 1}`}"`, left)).filter(Boolean);
  const variables = (dashboard.templating?.list ?? []).map((variable) => variableOf(variable, left)).filter(Boolean);
  if (dashboard.annotations?.list?.some(({ builtIn, enable }) => !builtIn && enable !== false)) {
    left.push("Annotations are left out.");
  }
  return { board: { title: String(dashboard.title ?? ""), ...(variables.length > 0 && { variables }), panels }, left };
}

function isPrometheus({ datasource }) {
  const type = datasource?.type;
  return type === undefined || type === "prometheus" || type === "datasource" && datasource.uid === "-- Mixed --";
}

function panelOf(panel, name, left) {
  const kind = kinds[panel.type];
  if (!kind || !isPrometheus(panel)) {
    left.push(`${name} is left out: ${kind ? `it asks ${panel.datasource.type}` : `a panel of the kind ${panel.type}`}.`);
    return undefined;
  }
  const targets = (panel.targets ?? []).filter(({ hide }) => !hide);
  const exprs = targets.filter((target) => isPrometheus(target) && typeof target.expr === "string" && target.expr.trim() !== "").map(({ expr }) => expr.trim());
  if (exprs.length < targets.length && exprs.length > 0) {
    left.push(`${name}: ${targets.length - exprs.length} of its queries are left out, they are not PromQL.`);
  }
  if (exprs.length === 0) {
    left.push(`${name} is left out: it has no query in PromQL.`);
    return undefined;
  }
  for (const { id } of panel.transformations ?? []) {
    left.push(`${name}: its transformation ${id} is left out.`);
  }
  const { unit, custom } = panel.fieldConfig?.defaults ?? {};
  const given = unit ?? panel.format ?? panel.yaxes?.[0]?.format;
  const known = units[given];
  if (given && !known && !["short", "none"].includes(given)) {
    left.push(`${name}: its unit ${given} is left out.`);
  }
  const mode = panel.type === "heatmap" ? "heatmap" : custom?.stacking?.mode === "normal" || panel.stack ? "stacked" : custom?.drawStyle === "bars" || panel.bars ? "bars" : custom?.drawStyle === "points" ? "points" : "";
  return { title: String(panel.title ?? ""), kind, exprs, ...(kind === "graph" && mode && { mode }), ...(known && { unit: known }), ...((panel.gridPos?.w > 12 || panel.span > 6) && { wide: true }) };
}

function variableOf({ name, type, query, options, regex, datasource }, left) {
  const text = typeof query === "string" ? query : query?.query ?? "";
  const leave = (why) => {
    left.push(`The variable ${name} is left out: ${why}.`);
  };
  switch (type) {
    case "datasource":
      return undefined; // it is this adapter
    case "query": {
      const [, metric, label] = text.match(/^\s*label_values\(\s*(?:(.*\S)\s*,\s*)?([a-zA-Z_]\w*)\s*\)\s*$/s) ?? [];
      return label && isPrometheus({ datasource }) ? { name, label, ...(metric && { metric }), ...(regex && { regex: regex.replace(/^\/(.*)\/\w*$/s, "$1") }) } : leave(`${text || "its query"} is no label_values`);
    }
    case "custom":
    case "interval":
    case "constant": {
      const values = type === "constant" ? [text] : (options ?? []).map(({ value }) => value).filter((value) => typeof value === "string" && !value.startsWith("$__"));
      const listed = values.length > 0 ? values : text.split(",").map((value) => value.trim()).filter(Boolean);
      return listed.length > 0 ? { name, values: listed } : leave("it has no values");
    }
    default:
      return leave(`it is of the kind ${type}`);
  }
}
