// What the adapter is and does. Rates are the differences between two answers.

import { ask } from "../common/api.js";
import { element, message, table, tiles } from "../common/dom.js";
import { bytes, count, duration, time } from "../common/format.js";
import { configuration } from "../common/senders.js";

const interval = 5000;

// stored counts what is stored, from writers and of the adapter's own.
const stored = 'adapter_engine_appended_samples_total{result="success"}';

export async function show(_, result, signal) {
  let last;
  const update = async () => {
    const { data } = await ask("status/adapter", {}, { signal });
    result.replaceChildren(...page(data, last ?? data));
    last = data;
  };
  await update();
  const timer = setInterval(() => {
    if (!document.hidden && !selecting(result)) {
      update().catch((err) => { // the numbers stay; the next time may go well
        if (!signal.aborted && !result.querySelector("[role=alert]")) {
          result.prepend(message("error", `${err.message} The numbers are those of ${time(new Date(last.now) / 1000)}.`));
        }
      });
    }
  }, interval);
  signal.addEventListener("abort", () => clearInterval(timer));
}

// selecting says whether somebody marks text in there, to copy it.
function selecting(node) {
  const selection = getSelection();
  return !selection.isCollapsed && node.contains(selection.anchorNode);
}

// total adds up the series of a metric; a name with labels is one series.
function total(metrics, name) {
  const names = Object.keys(metrics).filter((key) => key === name || key.startsWith(`${name}{`));
  return names.reduce((sum, key) => sum + metrics[key], 0);
}

function page(now, before) {
  const seconds = (new Date(now.now) - new Date(before.now)) / 1000;
  const metric = (name) => total(now.metrics, name);
  const rate = (name) => (seconds > 0 ? `${count((metric(name) - total(before.metrics, name)) / seconds)}/s` : "…");
  const size = (name) => (name in now.metrics ? bytes(metric(name)) : "–");
  return [
    element("h2", {}, "Now"),
    tiles(
      ["Samples stored", rate(stored)],
      ["Requests, write and read", rate("adapter_http_requests_total")],
      ["Queries to the HTTP API", rate("adapter_api_requests_total")],
      ["Series read", rate("adapter_engine_selected_series_total")],
      ["Samples refused", rate("adapter_write_rejected_total")],
      ["Writes failed", rate("adapter_write_failed_samples_total")]),
    element("h2", {}, "Sizes"),
    tiles(
      ["Series and periods known to be indexed", count(metric("adapter_index_known_series"))],
      ["Series waiting for CURRENT", count(metric("adapter_current_pending_series"))],
      ["Open chunks", size("adapter_buffer_open_bytes")],
      ["Database on the disk", size("adapter_pebble_disk_bytes")],
      ["Log on the disk, beside it", size("adapter_buffer_log_size_bytes")],
      ["Segments of the log", "adapter_buffer_log_segments" in now.metrics ? count(metric("adapter_buffer_log_segments")) : "–"],
      ["Not flushed yet", size("adapter_pebble_memtable_bytes")],
      ["Memory of the process", size("process_resident_memory_bytes")],
      ["Samples stored since the start", count(metric(stored))]),
    element("h2", {}, "Adapter"),
    table(undefined, [{ title: "Property", cell: ([what]) => what }, { title: "Value", cell: ([, value]) => value }], [
      ["Version", now.version || "built without one"],
      ["Started", `${time(new Date(now.started) / 1000)}, ${duration((new Date(now.now) - new Date(now.started)) / 1000)} ago`],
      ["Backend", `${now.backend}: ${now.location}`],
      ...(now.directoryFormat ? [["Format of the directory", `version ${now.directoryFormat}, as its file FORMAT says`]] : []),
      ["Format of the tables", `version ${now.format}`],
      ["Resource labels", now.resourceLabels.join(", ") || "none"],
    ]),
    element("h2", {}, "Tables"),
    table(undefined, [
      { title: "Table", kind: "text", cell: (t) => t.name },
      { title: "Column family", kind: "text", cell: (t) => t.family },
      { title: "Kept for", cell: (t) => (t.seconds ? duration(t.seconds) : "ever") },
    ], now.tables.flatMap((t) => t.families.map((f) => ({ name: t.name, family: f.name, seconds: f.maxAgeSeconds })))),
    element("h2", {}, "For prometheus.yml"),
    element("pre", {}, configuration()),
    element("p", {}, element("a", { href: "metrics" }, "All metrics"), " · ", element("a", { href: "debug/pprof/" }, "Profiles")),
  ];
}
