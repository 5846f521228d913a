// Imports, copies and heals that write to this adapter, each with a button that stops it.

import { ask } from "../common/api.js";
import { confirmEnd } from "../common/dialog.js";
import { element } from "../common/dom.js";
import { count, time } from "../common/format.js";
import { roughDuration } from "../common/quantities.js";
import { update } from "../common/rows.js";
import { table } from "../common/table.js";

const kinds = { import: "Import", copy: "Copy", heal: "Heal" };

// silent is after how long without a report nothing is known of one, in seconds.
const silent = 30;

// transfers returns a node and paint(status), which asks for them. There is nothing in it if there were none lately. As long as signal is not aborted.
export function transfers(signal) {
  const problems = element("div", {}), list = element("div", {});
  const node = element("div", {}, problems, list);
  let last, shown;
  const stop = (of) => confirmEnd({
    title: `Stop this ${of.kind}?`, subject: of.source, text: "What is written stays, and the same command goes on with the rest. A heal that the adapter does by itself is not taken up again.",
    keep: "Let it run", go: "Stop it", path: `admin/transfers/${encodeURIComponent(of.id)}`, node, problems, paint: () => paint(last),
  });
  const paint = async ({ adminAPI }) => {
    const columns = columnsOf(adminAPI && stop);
    last = { adminAPI };
    const { data } = await ask("status/transfers", {}, { signal });
    if (data.length === 0 || !update(shown, columns, data)) {
      shown = data.length === 0 ? undefined : table("Imports, copies and heals of the last day", columns, data, undefined, { find: columns[1] });
      list.replaceChildren(...(shown ? [element("h2", { tabindex: -1 }, "Imports"), shown] : []));
    }
  };
  return { node, paint };
}

function columnsOf(onStop) {
  return [
    { title: "What", kind: "text", cell: (t) => kinds[t.kind], value: (t) => `${t.kind} ${t.id}` },
    { title: "From", kind: "text", cell: (t) => element("span", { title: `Since ${time(new Date(t.begun) / 1000)}` }, element("code", {}, t.source)), value: (t) => t.source },
    { title: "Parts", kind: "number", cell: (t) => `${count(t.done)} of ${count(t.parts)}`, value: (t) => t.done / Math.max(1, t.parts) },
    { title: "Samples", kind: "number", cell: (t) => count(t.samples), value: (t) => t.samples },
    { title: "Per second", kind: "number", cell: (t) => count(Math.round(rate(t))), value: rate },
    { title: "Problems", kind: "number", cell: (t) => count(t.problems ?? 0), value: (t) => t.problems ?? 0 },
    { title: "State", kind: "text", cell: state, value: state },
    ...(onStop ? [{ title: "Stop", text: false, cell: (t) => (t.ended || t.stopped ? "" : element("button", { type: "button", onclick: () => onStop(t) }, "Stop")) }] : []),
  ];
}

function rate({ samples, begun, reported }) {
  return samples / Math.max(1, (new Date(reported) - new Date(begun)) / 1000);
}

// state says how it goes, and about how long it still takes.
function state(t) {
  const age = Date.now() / 1000 - new Date(t.reported) / 1000;
  if (t.ended) {
    return t.error ? `Failed: ${t.error}` : "Done";
  }
  if (age > silent) {
    return `Silent for ${roughDuration(age)}`;
  }
  const left = t.stopped || !t.expected || !t.samples ? 0 : (t.expected - t.samples) / rate(t);
  return t.stopped ? "Stopping" : left > 0 ? `Running, ${roughDuration(left)} left` : "Running";
}
