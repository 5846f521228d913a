// The small graphs of the tab Status: what is asked for, and what it means.

// A panel has a title, a sentence, and lines: an expression, a name and a unit. In expressions $i stands for the labels of the adapter
// and $w for a window. metric is one that there is only if the panel makes sense. A line may have a label by which its series are
// told apart.
export const groups = [
  {
    title: "Writing", panels: [
      panel("Samples stored", "Floats and histograms of all writers, and the adapter's own metrics.", "adapter_engine_appended_samples_total",
        ['sum(rate(adapter_engine_appended_samples_total{result="success",$i}[$w]))', "Stored", "/s"]),
      panel("Write requests", "Remote write and OTLP. A request is answered once its samples are durable.", "adapter_http_requests_total",
        ['sum(rate(adapter_http_requests_total{handler=~"write|otlp",$i}[$w]))', "Requests", "/s"]),
      panel("Latency of writes", "Median and 99th percentile.", "adapter_http_request_duration_seconds",
        [quantile(0.5, "adapter_http_request_duration_seconds", 'handler="write",'), "p50", " ms"],
        [quantile(0.99, "adapter_http_request_duration_seconds", 'handler="write",'), "p99", " ms"]),
      panel("Rejected samples", "By reason, per minute. Senders drop them.", "adapter_write_rejected_total",
        ["60 * sum by (reason) (rate(adapter_write_rejected_total{$i}[$w])) > 0", "reason", "/min", "None were rejected."]),
      panel("Healed gaps", "Samples that senders had not sent and that were read from them, and comparisons that failed.", "adapter_heal_samples_total",
        ["60 * sum(rate(adapter_heal_samples_total{$i}[$w]))", "Samples", "/min"], ["60 * sum(rate(adapter_heal_failures_total{$i}[$w]))", "Failed", "/min"]),
    ],
  },
  {
    title: "Reading", panels: [
      panel("Queries", "Requests to the HTTP API, including those of this page, and remote reads.", "adapter_api_requests_total",
        ["sum(rate(adapter_api_requests_total{$i}[$w]))", "HTTP API", "/s"],
        ['sum(rate(adapter_http_requests_total{handler="read",$i}[$w]))', "Remote read", "/s"]),
      panel("Latency of queries", "All endpoints of the HTTP API.", "adapter_api_request_duration_seconds",
        [quantile(0.5, "adapter_api_request_duration_seconds", ""), "p50", " ms"], [quantile(0.99, "adapter_api_request_duration_seconds", ""), "p99", " ms"]),
      panel("Series read", "Series whose samples or rollups queries have read.", "adapter_engine_selected_series_total",
        ["sum(rate(adapter_engine_selected_series_total{$i}[$w]))", "Series", "/s"]),
      panel("Cached results", "Share of the steps of cacheable range queries that came from the cache.", "adapter_results_cache_steps_total",
        ['100 * sum(rate(adapter_results_cache_steps_total{result="hit",$i}[$w])) / sum(rate(adapter_results_cache_steps_total{$i}[$w]))', "From the cache", "%"]),
    ],
  },
  {
    title: "Buffer", panels: [
      panel("Open chunks", "Samples in memory that are not in the store yet. The log holds them too.", "adapter_buffer_open_bytes",
        ["sum(adapter_buffer_open_bytes{$i})", "In memory", "B"]),
      panel("Log", "It grows until chunks are flushed, then its oldest segments are removed. Steady growth means that the store is too slow.", "adapter_buffer_log_size_bytes",
        ["sum(adapter_buffer_log_size_bytes{$i})", "Size", "B"], ["sum(adapter_buffer_log_segments{$i})", "Segments", ""]),
    ],
  },
  {
    title: "Disk and background work", panels: [
      panel("Free space", "On the disk of each directory. Below the floor, writes are refused.", "adapter_disk_free_bytes",
        ["max by (path) (adapter_disk_free_bytes{$i})", "path", "B", ""], ["max(adapter_disk_min_free_bytes{$i})", "Floor", "B"]),
      panel("Database", "On disk, without the log. Memtables are in memory and in the log of the store.", "adapter_pebble_disk_bytes",
        ["sum(adapter_pebble_disk_bytes{$i})", "On disk", "B"], ["sum(adapter_pebble_memtable_bytes{$i})", "Memtables", "B"]),
      panel("Compactions", "Pending work and completed compactions. Debt that only grows means that the disk is too slow.", "adapter_pebble_compaction_debt_bytes",
        ["sum(adapter_pebble_compaction_debt_bytes{$i})", "Debt", "B"], ["60 * sum(rate(adapter_pebble_compactions_total{$i}[$w]))", "Compactions", "/min"]),
      panel("Process memory", "Resident, as the system counts it.", "process_resident_memory_bytes",
        ["sum(process_resident_memory_bytes{$i})", "Resident", "B"]),
      panel("Rollup lag", "How long the oldest missing rollup is due. Rollups of a day are made nine hours after its end.", "adapter_rollup_lag_seconds",
        ["max(adapter_rollup_lag_seconds{$i}) / 3600", "Lag", " h"], ["sum(rate(adapter_rollup_rows_total{$i}[$w]))", "Rows read", "/s"]),
      panel("Seal lag", "The age of the oldest unsealed window. Up to 7 h is normal.", "adapter_seal_lag_seconds",
        ["max(adapter_seal_lag_seconds{$i}) / 3600", "Lag", " h"], ["sum(rate(adapter_seal_rows_total{$i}[$w]))", "Rows sealed", "/s"]),
    ],
  },
  {
    title: "Bigtable", panels: [
      panel("Requests to Bigtable", "All requests, failed requests, and retries.", "adapter_bigtable_requests_total",
        ["sum(rate(adapter_bigtable_requests_total{$i}[$w]))", "Requests", "/s"],
        ['sum(rate(adapter_bigtable_requests_total{result="failure",$i}[$w]))', "Failed", "/s"], ["sum(rate(adapter_bigtable_retries_total{$i}[$w]))", "Retries", "/s"]),
      panel("Latency of Bigtable", "Single attempts of all methods and tables.", "adapter_bigtable_attempt_duration_seconds",
        [quantile(0.5, "adapter_bigtable_attempt_duration_seconds", ""), "p50", " ms"], [quantile(0.99, "adapter_bigtable_attempt_duration_seconds", ""), "p99", " ms"],
        ["sum(adapter_bigtable_attempts_in_flight{$i})", "In flight", ""]),
    ],
  },
  {
    title: "Limits", panels: [
      panel("Refused or slow", "Queries above a limit, requests that waited too long for a free slot, and slow queries.", "adapter_api_limited_requests_total",
        ['60 * (sum(rate(adapter_api_limited_requests_total{$i}[$w])) or vector(0))', "Queries refused", "/min"],
        ['60 * (sum(rate(adapter_http_requests_total{code="503",$i}[$w])) or vector(0))', "Writes and reads refused", "/min"],
        ["60 * sum(rate(adapter_slow_queries_total{$i}[$w]))", "Slow queries", "/min"]),
      panel("Query memory", "What PromQL holds. Near --query.max-total-memory-bytes queries get a 503.", "adapter_query_memory_bytes",
        ["max_over_time(sum(adapter_query_memory_bytes{$i})[$w:])", "Held", "B"]),
      panel("Index in memory", "At most --index.max-memory. Evicted lists are read again.", "adapter_index_memory_bytes",
        ["sum(adapter_index_memory_bytes{$i})", "In memory", "B"], ["60 * sum(rate(adapter_index_evicted_lists_total{$i}[$w]))", "Lists evicted", "/min"]),
    ],
  },
  {
    title: "HA pairs", panels: [
      panel("Deduplicated samples", "Acknowledged and not stored, because the elected replica sends the same samples.", "adapter_ha_deduplicated_samples_total",
        ["sum by (cluster) (rate(adapter_ha_deduplicated_samples_total{$i}[$w]))", "cluster", "/s", "None were deduplicated."],
        ["sum(increase(adapter_ha_elections_total{$i}[$w]))", "Elections", ""]),
    ],
  },
];

// panel makes a panel. A line with a fourth text has a line for each value of the label that is its name, and says that text if there is none.
function panel(title, sentence, metric, ...lines) {
  return { title, sentence, metric, lines: lines.map(([expr, name, unit, empty]) => ({ expr, name, unit, empty })) };
}

function quantile(q, metric, labels) {
  return `1000 * histogram_quantile(${q}, sum by (le) (rate(${metric}_bucket{${labels}$i}[$w])))`;
}

// expressionOf returns the expression of a line for an adapter and a window in seconds.
export function expressionOf({ expr }, { job, instance }, window) {
  return expr.replaceAll("$i", `job=${JSON.stringify(job)},instance=${JSON.stringify(instance)}`).replaceAll("$w", `${window}s`);
}
