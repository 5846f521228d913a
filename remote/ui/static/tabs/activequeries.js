// The queries that run, each with a button that cancels it, and the rules that block others.

import { ask } from "../common/api.js";
import { confirmEnd } from "../common/dialog.js";
import { element, message } from "../common/dom.js";
import { count, time } from "../common/format.js";
import { bytes, roughDuration } from "../common/quantities.js";
import { update } from "../common/rows.js";
import { table } from "../common/table.js";

// kinds are those of queries, as they are named here.
const kinds = { instant: "Instant", range: "Range", read: "Remote read", series: "Series", labels: "Labels", exemplars: "Exemplars" };

// activeQueries returns a node and paint(status), which asks for the queries and shows them, and the rules of a status of the adapter. What
// has the focus stays. As long as signal is not aborted.
export function activeQueries(signal) {
  const problems = element("div", {}), running = element("div", {}), blocked = element("div", {});
  const node = element("div", {}, problems, running, blocked);
  let last, shown;
  const paint = async (status = last) => {
    last = status;
    const { data: queries } = await ask("status/active_queries", {}, { signal });
    const columns = columnsOf(status, (query) => cancel(query, { paint, problems, node }));
    if (queries.length === 0 || !update(shown, columns, queries)) {
      shown = queries.length === 0 ? undefined : table("Running and waiting", columns, queries, undefined, { find: columns[0] });
      running.replaceChildren(element("h2", { tabindex: -1 }, "Active queries"), shown ?? element("p", { class: "facts" }, "No queries are running."));
    }
    paintRules(blocked, status.blockedQueries);
  };
  return { node, paint };
}

function columnsOf({ adminAPI }, onCancel) {
  return [
    { title: "Query", kind: "text", cell: (q) => element("span", { title: times(q) }, element("code", {}, q.query || "all")), value: (q) => `${q.query} ${q.id}`, text: (q) => q.query },
    { title: "Kind", kind: "text", cell: (q) => kinds[q.kind] ?? q.kind, value: (q) => q.kind },
    { title: "Age", kind: "number", cell: (q) => roughDuration(q.ageSeconds), value: (q) => q.ageSeconds },
    { title: "Held", kind: "number", cell: (q) => bytes(q.heldBytes), value: (q) => q.heldBytes },
    { title: "Rows read", kind: "number", cell: (q) => count(q.rows), value: (q) => q.rows },
    { title: "Client", kind: "text", cell: clientOf, value: clientOf },
    ...(adminAPI ? [{ title: "Cancel", text: false, cell: (q) => (q.cancelled ? "Cancelled" : element("button", { type: "button", onclick: () => onCancel(q) }, "Cancel")) }] : []),
  ];
}

function times({ start, end, step }) {
  return [start !== undefined && `from ${time(start / 1000)}`, end !== undefined && `to ${time(end / 1000)}`, step && `step ${roughDuration(step / 1000)}`].filter(Boolean).join(", ");
}

function clientOf({ client, user, forwardedFor, userAgent }) {
  return [forwardedFor ? `${forwardedFor} by ${client}` : client, user, userAgent].filter(Boolean).join(", ");
}

// cancel asks whether a query is to be cancelled, and does so.
function cancel(query, { paint, problems, node }) {
  confirmEnd({
    title: "Cancel this query?", subject: query.query, text: `Its client, ${clientOf(query)}, is told that an operator has cancelled it.`,
    keep: "Keep it", go: "Cancel the query", path: `status/active_queries/${query.id}`, node, problems, paint,
  });
}

// paintRules shows the rules of a file, if there is one.
function paintRules(node, state) {
  const key = JSON.stringify(state);
  if (node.dataset.key === key) {
    return;
  }
  if (key !== undefined) {
    node.dataset.key = key;
  }
  const { file, rules = [], error } = state ?? {};
  node.replaceChildren(...(state ? [
    element("h2", {}, "Blocked queries"),
    ...(error ? [message("warning", `The rules are those of before, the file is wrong now: ${error}`)] : []),
    rules.length === 0 ? element("p", { class: "facts" }, `${file} has no rules.`) : table(`Rules of ${file}`, [
      { title: "Line", kind: "number", cell: (r) => count(r.line), value: (r) => r.line },
      { title: "Rule", kind: "text", cell: (r) => element("code", {}, r.rule), value: (r) => r.rule },
      { title: "Reason", kind: "text", cell: (r) => r.reason ?? "", value: (r) => r.reason ?? "" },
    ], rules),
  ] : []));
}
