// What is wrong with an adapter: one table of rules over its metrics. docs/monitoring.md says the same in words.

import { count } from "../common/format.js";
import { bytes, roughDuration } from "../common/quantities.js";

const day = 86400; // in seconds

// grows is a rule of a counter: it holds if it has grown, and says by how much.
function grows(metric, say, labels) {
  return { metrics: [metric], find: (s) => s.growth(metric, labels) > 0 && say(s.growth(metric, labels), s) };
}

// many writes a number of things.
function many(n, one, more) {
  return `${count(n)} ${n === 1 ? one : more}`;
}

function times(n) {
  return many(n, "time", "times");
}

// by lists the growth of a counter by a label.
function by(s, metric, label) {
  return s.grown(metric).sort((a, b) => b.value - a.value).map((m) => `${count(m.value)} ${m.labels[label]}`).join(", ");
}

// rules are all that there are, the worst first. find(snapshot) returns a sentence, or what is false if all is well. Growth is that of
// about an hour; where a sentence has "…" stands of what time it is. level is error, warning or note, todo says what
// to do, and doc is a heading of the documentation.
export const rules = [
  {
    name: "disk full", level: "error", metrics: ["adapter_disk_free_bytes", "adapter_disk_min_free_bytes"], doc: "trouble.md#a-full-disk",
    find: (s) => disks(s, (free, floor) => free < floor).map(({ path, free, floor }) =>
      `Writes are refused: the disk of ${path} has ${bytes(free)} free, and the floor is ${bytes(floor)}.`).join(" "),
    todo: "Free disk space, but do not delete files of the store. Writes resume by themselves. Or shorten the retention.",
  },
  {
    name: "damaged files", level: "error", metrics: ["adapter_pebble_damaged_files"], doc: "trouble.md#damaged-files-of-the-embedded-store",
    find: (s) => s.sum("adapter_pebble_damaged_files") > 0 && `${many(s.sum("adapter_pebble_damaged_files"), "file of the store is", "files of the store are")} damaged. Queries that need them fail.`,
    todo: "The log names the files. Restore a backup, or stop the adapter and run adapter check.",
  },
  {
    name: "log not writable", level: "error", doc: "trouble.md#a-log-that-cannot-be-written",
    ...grows("adapter_buffer_refused_commits_total", (n) => `The buffer could not write to its log ${times(n)}…`),
    todo: "Its disk or quota is full: free some space. Senders retry.",
  },
  {
    name: "clock in doubt", level: "error", metrics: ["adapter_clock_in_doubt"], doc: "bigtable.md#sealing",
    find: (s) => s.sum("adapter_clock_in_doubt") > 0 && "The clock may be wrong. Samples are stored, but sealing is paused.",
    todo: "Compare the clock of this machine with those of the other adapters.",
  },
  {
    name: "writes fail", level: "error", metrics: ["adapter_http_requests_total"], doc: "monitoring.md#metrics-to-watch",
    find: (s) => s.growth("adapter_http_requests_total", { handler: /^(write|otlp)$/, code: /^5/ }) > 0 &&
      `${many(s.growth("adapter_http_requests_total", { handler: /^(write|otlp)$/, code: /^5/ }), "write request was", "write requests were")} answered with a 5xx…`,
    todo: "Senders retry. The log has the cause: the store, the disk, or too many requests at once.",
  },
  {
    name: "samples not confirmed", level: "error", doc: "monitoring.md#metrics-to-watch",
    ...grows("adapter_write_failed_samples_total", (n) => `${many(n, "sample was", "samples were")} not confirmed by the store…`),
    todo: "Senders retry. The log has the error of the store.",
  },
  {
    name: "samples refused", level: "warning", doc: "monitoring.md#metrics-to-watch",
    ...grows("adapter_write_rejected_total", (n, s) => `${many(n, "sample was", "samples were")} rejected (${by(s, "adapter_write_rejected_total", "reason")})…`),
    todo: "Senders drop them. The log and the response to the sender name the first one. Fix the sender, its clock, or the retention.",
  },
  {
    name: "rows that the store does not take", level: "error", metrics: ["adapter_buffer_failing_rows"], doc: "monitoring.md#metrics-to-watch",
    find: (s) => s.sum("adapter_buffer_failing_rows") > 0 && `The store rejects ${many(s.sum("adapter_buffer_failing_rows"), "row. It is kept", "rows. They are kept")} in the directory of the log, and queries see them.`,
    todo: "The rows and their errors are listed below. Refused rows are retried only at the next start.",
  },
  {
    name: "chunks not written", level: "warning", doc: "monitoring.md#metrics-to-watch",
    ...grows("adapter_buffer_seal_failures_total", (n) => `${many(n, "write", "writes")} of chunks to the store failed…`),
    todo: "They are retried. If this continues, the log of the buffer fills up: check the errors of the store.",
  },
  {
    name: "disk nearly full", level: "warning", metrics: ["adapter_disk_free_bytes", "adapter_disk_min_free_bytes"], doc: "trouble.md#a-full-disk",
    find: (s) => disks(s, (free, floor) => free >= floor && free < 2 * floor).map(({ path, free, floor }) =>
      `The disk of ${path} has ${bytes(free)} free. Writes stop below ${bytes(floor)}.`).join(" "),
    todo: "Free disk space, or shorten the retention.",
  },
  {
    name: "retention fails", level: "error", doc: "retention.md",
    ...grows("adapter_retention_failures_total", (n) => `Old samples could not be deleted, ${times(n)}…`),
    todo: "It is retried every 10 minutes. The log has the error of META or the store.",
  },
  {
    name: "rules fail", level: "warning", doc: "retention.md#rules-by-selector",
    ...grows("adapter_retention_rule_failures_total", (n) => `Samples that retention rules cut could not be removed, ${times(n)}…`),
    todo: "It is retried. The samples are hidden meanwhile.",
  },
  {
    name: "deletion waits", level: "warning", metrics: ["adapter_deletion_pending", "adapter_deletion_failures_total"], doc: "deletion.md",
    find: (s) => (s.growth("adapter_deletion_failures_total") > 0 && `Deleted samples could not be removed from the store, ${times(s.growth("adapter_deletion_failures_total"))}…`) ||
      (s.sum("adapter_deletion_pending") > 0 && s.before.get('["adapter_deletion_pending"]') > 0 && "Deleted samples have not been removed from the store for an hour. They are hidden."),
    todo: "Queries do not return them. The log says why they are still in the store.",
  },
  {
    name: "rollups behind", level: "warning", metrics: ["adapter_rollup_lag_seconds"], doc: "rollups.md#how-they-are-made",
    find: (s) => s.max("adapter_rollup_lag_seconds") > day && `Rollups are ${roughDuration(s.max("adapter_rollup_lag_seconds"))} behind.`,
    todo: "Queries read samples meanwhile, which is slower. Raise --rollup.rows-per-second, or check the log.",
  },
  {
    name: "rollups fail", level: "warning", doc: "rollups.md#how-they-are-made",
    ...grows("adapter_rollup_failures_total", (n) => `${many(n, "attempt", "attempts")} to make rollups failed…`),
    todo: "They are retried. The log names the rows that cannot be read.",
  },
  {
    name: "sealing behind", level: "warning", metrics: ["adapter_seal_lag_seconds"], doc: "bigtable.md#sealing",
    find: (s) => s.max("adapter_seal_lag_seconds") > 17 * 3600 && `The oldest window that is not sealed began ${roughDuration(s.max("adapter_seal_lag_seconds"))} ago.`,
    todo: "Raise --seal.rows-per-second, and --seal.workers if Bigtable answers slowly. Raw cells take more space until then.",
  },
  {
    name: "sealing fails", level: "warning", doc: "bigtable.md#sealing",
    ...grows("adapter_seal_failures_total", (n) => `${many(n, "run of the sealer or one of its rows", "runs of the sealer or their rows")} failed…`),
    todo: "They are retried. The log names the rows.",
  },
  {
    name: "turns too short", level: "warning", metrics: ["adapter_seal_walked_ratio"], doc: "bigtable.md#sealing",
    find: (s) => s.list("adapter_seal_walked_ratio").some((m) => m.value < 1) && `The last run of the sealer covered only ${count(100 * s.sum("adapter_seal_walked_ratio"))}% of the rows.`,
    todo: "Raise --seal.rows-per-second, and --seal.workers if Bigtable answers slowly.",
  },
  {
    name: "clocks differ", level: "warning", metrics: ["adapter_clock_skew_seconds"], doc: "bigtable.md#sealing",
    find: (s) => s.list("adapter_clock_skew_seconds").filter((m) => Math.abs(m.value) >= 1).map((m) =>
      `The clock of another adapter is ${roughDuration(Math.abs(m.value))} ${m.value > 0 ? "ahead of" : "behind"} this one.`).join(" "),
    todo: "Run NTP on all machines.",
  },
  {
    name: "Bigtable fails", level: "error", doc: "bigtable.md",
    ...grows("adapter_bigtable_requests_total", (n) => `${many(n, "request", "requests")} to Bigtable failed…`, { result: "failure" }),
    todo: "Check the log, and the latency and retries below. ResourceExhausted means that more nodes are needed.",
  },
  {
    name: "HA fails", level: "error", doc: "several-adapters.md#ha-pairs",
    ...grows("adapter_ha_failures_total", (n) => `${many(n, "request of an HA replica was", "requests of HA replicas were")} refused… META failed.`),
    todo: "Senders retry. Check that the store can be reached.",
  },
  {
    name: "snapshots fail", level: "warning", doc: "backup.md",
    ...grows("adapter_snapshot_failures_total", (n) => `${many(n, "snapshot", "snapshots")} failed…`),
    todo: "The log says why. Snapshots need disk space.",
  },
  {
    name: "background work fails", level: "warning", doc: "monitoring.md#metrics-to-watch",
    ...grows("adapter_pebble_background_failures_total", (n) => `${many(n, "flush or compaction", "flushes or compactions")} of the store failed…`),
    todo: "They are retried. The disk is full or a file is damaged: see the log.",
  },
  {
    name: "slow disk", level: "warning", metrics: ["adapter_pebble_write_stalls_total", "adapter_pebble_slow_disk_operations_total"], doc: "monitoring.md#metrics-to-watch",
    find: (s) => [["adapter_pebble_write_stalls_total", "times writes waited for compactions"], ["adapter_pebble_slow_disk_operations_total", "operations of the disk were very slow"]]
      .filter(([name]) => s.growth(name) > 0).map(([name, what]) => `${count(s.growth(name))} ${what}…`).join(" "),
    todo: "The disk is too slow for the write load: use a faster or a dedicated disk.",
  },
  {
    name: "logs without an adapter", level: "warning", metrics: ["adapter_buffer_other_logs"], doc: "trouble.md#lost-logs",
    find: (s) => s.sum("adapter_buffer_other_logs") > 0 && `The store waits for ${many(s.sum("adapter_buffer_other_logs"), "log of another adapter", "logs of other adapters")}.`,
    todo: "If one of these adapters is gone for good, remove its log with adapter buffer list and adapter buffer forget.",
  },
  {
    name: "CURRENT dropped", level: "warning", doc: "monitoring.md#metrics-to-watch",
    ...grows("adapter_current_dropped_total", (n) => `${many(n, "current value was", "current values were")} not written to CURRENT…`),
    todo: "The samples themselves are stored. The store is too slow for CURRENT, or fails.",
  },
  {
    name: "queries refused", level: "warning", metrics: ["adapter_api_limited_requests_total", "adapter_http_requests_total"], doc: "configuration.md",
    find: (s) => {
      const n = s.growth("adapter_api_limited_requests_total") + s.growth("adapter_http_requests_total", { handler: /^(read|federate)$/, code: "503" });
      return n > 0 && `${many(n, "query was", "queries were")} refused… ${n === 1 ? "It" : "They"} exceeded a limit or waited too long.`;
    },
    todo: "The response names the limit. Explain shows which selector reads too much.",
  },
  {
    name: "index marks read", level: "note", metrics: ["adapter_index_mark_lookups_total"], doc: "monitoring.md#metrics-to-watch",
    find: (s) => s.growth("adapter_index_mark_lookups_total", { result: "found" }) > 100_000 &&
      `Index marks of ${count(s.growth("adapter_index_mark_lookups_total", { result: "found" }))} series were read again…`,
    todo: "If this continues hours after a start, raise --index.written-series.",
  },
  {
    name: "slow queries", level: "note", doc: "monitoring.md#slow-queries",
    ...grows("adapter_slow_queries_total", (n) => `${many(n, "query was", "queries were")} slow…`),
    todo: "The log names them. Explain shows what they read.",
  },
];

// disks returns the directories whose free space and floor are as wanted, one for each disk.
function disks(s, wanted) {
  const floors = new Map(s.list("adapter_disk_min_free_bytes").map((m) => [m.labels.path, m.value]));
  const found = s.list("adapter_disk_free_bytes").map((m) => ({ path: m.labels.path, free: m.value, floor: floors.get(m.labels.path) ?? 0 }))
    .filter(({ free, floor }) => wanted(free, floor));
  return found.filter((d, i) => !found.slice(0, i).some((other) => d.path.startsWith(`${other.path}/`)));
}

// ruleMetrics names all metrics that rules look at.
export const ruleMetrics = [...new Set(rules.flatMap(({ metrics }) => metrics))];

// findings returns what is wrong: the rules that hold, each with its sentence. window says of what time growth is,
// such as "in the last hour".
export function findings(snapshot, window) {
  return rules.map((rule) => ({ rule, found: rule.find(snapshot) })).filter(({ found }) => found)
    .map(({ rule, found }) => ({ ...rule, text: found.replaceAll("…", ` ${window}.`) }))
    .sort((a, b) => levels.indexOf(a.level) - levels.indexOf(b.level));
}

const levels = ["error", "warning", "note"];
