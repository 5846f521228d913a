// The unit of an expression, from the names of its metrics and what is done with them. Where this leaves a
// doubt there is none.

import { known } from "./units.js";

// suffixes of names, and what units they say.
const suffixes = {
  bytes: "bytes", bits: "bits", seconds: "seconds", ratio: "ratio", percent: "percent", celsius: "celsius", volts: "volts", amperes: "amperes",
  watts: "watts", joules: "joules", hertz: "hertz", meters: "meters", grams: "grams",
};

// A Measure is what the values of an expression are: a unit, "" for numbers without one and undefined where it is
// not known; how often it is divided by seconds; and the unit of what its histograms observe.
const nothing = { unit: undefined, per: 0, observed: undefined };
const pure = { ...nothing, unit: "" };

// unitOf returns the unit of the values of a syntax tree, as a name such as bytes/s, and of its histograms those of their
// counts and of what they observe.
export function unitOf(tree) {
  const { unit, per, observed } = tree ? measure(tree) : nothing;
  return { values: written(unit, per), counts: written("", per), observed: observed ?? "" };
}

// observedBy returns the unit of what metrics of these names observe, as exemplars have it.
export function observedBy(names) {
  const units = new Set(names.map((name) => measureOf(name ?? "").observed ?? ""));
  return units.size === 1 ? [...units][0] : "";
}

function written(unit, per) {
  if (unit === "seconds" && per > 0) {
    per--; // seconds of each second are a number
    unit = "";
  }
  return per === 0 ? unit ?? "" : per === 1 ? `${unit ?? ""}/s` : "";
}

// measureOf returns that of a metric.
function measureOf(name) {
  if (/(^|_)(timestamp|start_time|boot_time)_seconds$/.test(name) || name.endsWith("_created")) {
    return { ...pure, unit: "timestamp" };
  }
  const [, base, kind] = name.match(/^(.*?)(_total|_sum|_count|_bucket)?$/);
  const unit = suffixes[base.split("_").at(-1)];
  switch (kind) {
    case "_count":
      return pure;
    case "_bucket":
      return { ...pure, observed: unit };
    case "_total":
      return { ...nothing, unit: unit ?? "" };
    default: // as a histogram it observes what it is called after
      return { ...nothing, unit, observed: kind ? undefined : unit };
  }
}

// Functions whose values have the unit of their last vector.
const same = /^((avg|min|max|sum|last|first|quantile|stddev|mad)_over_time|abs|ceil|floor|round|clamp|clamp_min|clamp_max|sort|sort_desc|sort_by_label|sort_by_label_desc|label_replace|label_join|increase|delta|idelta|predict_linear|double_exponential_smoothing|scalar|vector|info)$/;

const perSecond = ["rate", "irate", "deriv"];

function measure(node) {
  switch (node.type) {
    case "vectorSelector":
    case "matrixSelector":
      return measureOf(node.name || (node.matchers.find((m) => m.name === "__name__" && m.type === "=")?.value ?? ""));
    case "parenExpr":
    case "unaryExpr":
    case "subquery":
    case "stepInvariantExpr":
      return measure(node.expr);
    case "call":
      return called(node.func.name, node.args);
    case "aggregation":
      return ["count", "group", "count_values", "stdvar"].includes(node.op) ? pure : measure(node.expr);
    case "binaryExpr":
      return combined(node, measure(node.lhs), measure(node.rhs));
    default:
      return nothing;
  }
}

// called returns the measure of a function of arguments.
function called(name, args) {
  const of = args.find((a) => a.type !== "numberLiteral" && a.type !== "stringLiteral");
  const inner = of ? measure(of) : nothing;
  if (perSecond.includes(name)) {
    return { ...inner, per: inner.per + 1 };
  }
  if (same.test(name)) {
    return inner;
  }
  switch (name) {
    case "histogram_quantile":
    case "histogram_avg":
    case "histogram_stddev":
      return { ...nothing, unit: inner.observed };
    case "histogram_sum":
      return { ...nothing, unit: inner.observed, per: inner.per };
    case "histogram_count":
      return { ...pure, per: inner.per };
    case "time":
    case "timestamp":
      return { ...pure, unit: "timestamp" };
    case "count_over_time":
    case "changes":
    case "resets":
      return pure;
    case "histogram_fraction":
      return { ...pure, unit: "ratio" };
    default:
      return nothing;
  }
}

function combined({ op, bool, lhs, rhs }, left, right) {
  const isNumber = (node) => node.type === "numberLiteral" || ["parenExpr", "unaryExpr"].includes(node.type) && isNumber(node.expr);
  const alike = left.unit === right.unit && left.per === right.per;
  if (["==", "!=", ">", "<", ">=", "<="].includes(op)) {
    return bool ? pure : isNumber(lhs) ? right : left;
  }
  switch (op) {
    case "and":
    case "unless":
      return left;
    case "or":
      return alike ? left : nothing;
    case "+":
    case "-":
      if (op === "-" && alike && left.unit === "timestamp") {
        return { ...nothing, unit: "seconds" };
      }
      return isNumber(rhs) ? left : isNumber(lhs) ? right : alike ? left : nothing;
    case "/":
      // What is known is divided by what is known to be a number, such as a sum by a count.
      return known(left.unit) && right.unit === "" ? { ...nothing, unit: left.unit, per: left.per - right.per } : nothing;
    default:
      return nothing;
  }
}
