package project

// Units of Grafana.
const (
	perSecond = "cps"
	requests  = "reqps"
	inBytes   = "bytes"
	byteRate  = "Bps"
	seconds   = "s"
	ratio     = "percentunit"
	count     = "short"
	noUnit    = "none"
)

// boards are those of deploy/grafana/dashboards.
func boards() []board {
	return []board{overviewBoard(), writeBoard(), readBoard(), storageBoard(), bigtableBoard(), tenantsBoard(), rulesBoard()}
}

func overviewBoard() board {
	return board{name: "overview", title: "Overview", sections: []section{
		{"Now", []panel{
			{title: "Adapters", kind: "stat", unit: noUnit, description: "Adapters that are scraped, by version.", queries: []boardQuery{
				q(`count by (version) (adapter_build_info{$a})`, "{{version}}")}},
			{title: "Samples written", kind: "stat", unit: perSecond, description: "Samples a second that the store has confirmed.", queries: []boardQuery{
				q(`sum(rate(adapter_engine_appended_samples_total{$a, result="success"}[$__rate_interval]))`, "samples")}},
			{title: "Writes that fail", kind: "stat", unit: ratio, description: "Share of writes that were answered with a 5xx.", queries: []boardQuery{
				q(`(sum(rate(adapter_http_requests_total{$a, handler=~"write|otlp", code=~"5.."}[$__rate_interval])) or vector(0)) / sum(rate(adapter_http_requests_total{$a, handler=~"write|otlp"}[$__rate_interval]))`, "5xx")}},
			{title: "Series", kind: "stat", unit: count, description: "Series in an index period that adapters remember as written.", queries: []boardQuery{
				q(`sum(adapter_index_known_series{$a})`, "series")}},
			{title: "Free disk above the floor", kind: "stat", unit: inBytes, description: "The least of all disks. At 0 writes are refused.", queries: []boardQuery{
				q(`min(adapter_disk_free_bytes{$a} - adapter_disk_min_free_bytes{$a})`, "free")}},
			{title: "Queries", kind: "stat", unit: requests, description: "Requests a second to the HTTP API.", queries: []boardQuery{
				q(`sum(rate(adapter_api_requests_total{$a}[$__rate_interval]))`, "queries")}},
			{title: "Rollups behind", kind: "stat", unit: seconds, description: "Since when the first day without rollups is over.", queries: []boardQuery{
				q(`max(adapter_rollup_lag_seconds{$a})`, "lag")}},
			{title: "Replayed", kind: "stat", unit: ratio, description: "Of an adapter that starts, how much of its log is replayed.", queries: []boardQuery{
				q(`min(adapter_buffer_replay_progress_ratio{$a})`, "log")}},
		}},
		{"Requests", []panel{
			{title: "Requests", unit: requests, description: "Requests of the protocols, by handler and status code.", queries: []boardQuery{
				q(`sum by (handler, code) (rate(adapter_http_requests_total{$a}[$__rate_interval]))`, "{{handler}} {{code}}")}},
			{title: "Duration of requests, 99th percentile", unit: seconds, queries: []boardQuery{
				q(`histogram_quantile(0.99, sum by (le, handler) (rate(adapter_http_request_duration_seconds_bucket{$a}[$__rate_interval])))`, "{{handler}}")}},
		}},
		{"Process", []panel{
			{title: "CPU", unit: "none", description: "Cores in use.", queries: []boardQuery{
				q(`rate(process_cpu_seconds_total{$a}[$__rate_interval])`, "{{instance}}")}},
			{title: "Memory", unit: inBytes, description: "Resident memory, and what Go's heap has in use.", queries: []boardQuery{
				q(`process_resident_memory_bytes{$a}`, "{{instance}} resident"),
				q(`go_memstats_heap_inuse_bytes{$a}`, "{{instance}} heap")}},
			{title: "Goroutines", unit: count, queries: []boardQuery{q(`go_goroutines{$a}`, "{{instance}}")}},
			{title: "Running since", unit: seconds, queries: []boardQuery{q(`time() - process_start_time_seconds{$a}`, "{{instance}}")}},
		}},
	}}
}

func writeBoard() board {
	return board{name: "write", title: "Write", sections: []section{
		{"Requests", []panel{
			{title: "Writes", unit: requests, description: "Remote write and OTLP, by status code. A 5xx is sent again, a 4xx is not.", queries: []boardQuery{
				q(`sum by (handler, code) (rate(adapter_http_requests_total{$a, handler=~"write|otlp"}[$__rate_interval]))`, "{{handler}} {{code}}")}},
			{title: "Duration of writes", unit: seconds, queries: []boardQuery{
				q(`histogram_quantile(0.5, sum by (le) (rate(adapter_http_request_duration_seconds_bucket{$a, handler=~"write|otlp"}[$__rate_interval])))`, "50th percentile"),
				q(`histogram_quantile(0.99, sum by (le) (rate(adapter_http_request_duration_seconds_bucket{$a, handler=~"write|otlp"}[$__rate_interval])))`, "99th percentile")}},
			{title: "Writes at once", unit: count, description: "Writes that run or wait, and how many may run. Above it they wait.", queries: []boardQuery{
				q(`sum by (instance) (adapter_http_requests_in_flight{$a, handler=~"write|otlp"})`, "{{instance}}"),
				q(`max(adapter_http_concurrent_requests_limit{$a, gate="write"})`, "limit")}},
			{title: "Bytes of requests", unit: byteRate, description: "After decompression.", queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_write_decoded_bytes_total{$a}[$__rate_interval]))`, "{{instance}}")}},
		}},
		{"Samples", []panel{
			{title: "Samples written", unit: perSecond, description: "Confirmed by the store.", queries: []boardQuery{
				q(`sum by (protocol) (rate(adapter_write_samples_total{$a}[$__rate_interval]))`, "floats {{protocol}}"),
				q(`sum by (protocol) (rate(adapter_write_histograms_total{$a}[$__rate_interval]))`, "histograms {{protocol}}"),
				q(`sum by (protocol) (rate(adapter_write_exemplars_total{$a}[$__rate_interval]))`, "exemplars {{protocol}}")}},
			{title: "Samples rejected", unit: perSecond, description: "They can never be stored, by reason.", queries: []boardQuery{
				q(`sum by (reason) (rate(adapter_write_rejected_total{$a}[$__rate_interval]))`, "{{reason}}")}},
			{title: "Samples not confirmed", unit: perSecond, description: "Their senders send them again.", queries: []boardQuery{
				q(`sum by (protocol) (rate(adapter_write_failed_samples_total{$a}[$__rate_interval]))`, "{{protocol}}")}},
			{title: "Late samples", unit: perSecond, description: "They get chunks of their own.", queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_buffer_late_samples_total{$a}[$__rate_interval]))`, "{{instance}}")}},
			{title: "HA: samples of replicas that are not elected", unit: perSecond, description: "Acknowledged and not stored, by cluster.", queries: []boardQuery{
				q(`sum by (cluster) (rate(adapter_ha_deduplicated_samples_total{$a}[$__rate_interval]))`, "{{cluster}}")}},
			{title: "HA: elections", unit: count, description: "In an hour. A replica that is elected often pauses too long.", queries: []boardQuery{
				q(`sum by (instance) (increase(adapter_ha_elections_total{$a}[1h]))`, "{{instance}}")}},
		}},
		{"Buffer", []panel{
			{title: "Log", unit: inBytes, description: "Size on the disk, and above which chunks are flushed early.", queries: []boardQuery{
				q(`adapter_buffer_log_size_bytes{$a}`, "{{instance}}"),
				q(`max(adapter_buffer_log_limit_bytes{$a})`, "limit")}},
			{title: "Open chunks", unit: inBytes, description: "Size in memory, and above which chunks are flushed early.", queries: []boardQuery{
				q(`adapter_buffer_open_bytes{$a}`, "{{instance}}"),
				q(`max(adapter_buffer_open_limit_bytes{$a})`, "limit")}},
			{title: "Commits to the log", unit: perSecond, queries: []boardQuery{
				q(`sum(rate(adapter_buffer_commits_total{$a}[$__rate_interval]))`, "commits"),
				q(`sum(rate(adapter_buffer_log_syncs_total{$a}[$__rate_interval]))`, "syncs"),
				q(`sum(rate(adapter_buffer_refused_commits_total{$a}[$__rate_interval]))`, "refused")}},
			{title: "Bytes to the log", unit: byteRate, queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_buffer_log_bytes_total{$a}[$__rate_interval]))`, "{{instance}}")}},
			{title: "Chunks flushed", unit: perSecond, queries: []boardQuery{
				q(`sum(rate(adapter_buffer_sealed_chunks_total{$a}[$__rate_interval]))`, "chunks"),
				q(`sum(rate(adapter_buffer_seal_failures_total{$a}[$__rate_interval]))`, "failures")}},
			{title: "Rows that the store does not take", unit: count, queries: []boardQuery{
				q(`sum by (instance, state) (adapter_buffer_failing_rows{$a})`, "{{instance}} {{state}}")}},
			{title: "Series in memory", unit: count, queries: []boardQuery{q(`adapter_buffer_series{$a}`, "{{instance}}")}},
			{title: "Replay", unit: ratio, description: "Part of the log that is replayed at the start.", queries: []boardQuery{
				q(`adapter_buffer_replay_progress_ratio{$a}`, "{{instance}}")}},
		}},
		{"Index, CURRENT and metadata", []panel{
			{title: "Rows written to the index", unit: perSecond, queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_index_written_rows_total{$a}[$__rate_interval]))`, "{{instance}}")}},
			{title: "Series looked up in the index", unit: perSecond, description: "Those found were forgotten: see --index.written-series.", queries: []boardQuery{
				q(`sum by (result) (rate(adapter_index_mark_lookups_total{$a}[$__rate_interval]))`, "{{result}}")}},
			{title: "Current values", unit: count, description: "Not in CURRENT yet, and dropped in a second. The samples themselves are stored.", queries: []boardQuery{
				q(`sum by (instance) (adapter_current_pending_series{$a})`, "{{instance}} pending"),
				q(`sum by (instance) (rate(adapter_current_dropped_total{$a}[$__rate_interval]))`, "{{instance}} dropped")}},
			{title: "Metadata", unit: perSecond, queries: []boardQuery{
				q(`sum(rate(adapter_write_metadata_total{$a}[$__rate_interval]))`, "taken"),
				q(`sum(rate(adapter_metadata_rows_total{$a}[$__rate_interval]))`, "rows written")}},
			{title: "OTLP", unit: perSecond, queries: []boardQuery{
				q(`sum by (category) (rate(adapter_otlp_translation_warnings_total{$a}[$__rate_interval]))`, "{{category}}"),
				q(`sum(rate(adapter_otlp_dropped_deltas_total{$a}[$__rate_interval]))`, "deltas dropped")}},
		}},
	}}
}

func readBoard() board {
	return board{name: "read", title: "Read and query", sections: []section{
		{"Requests", []panel{
			{title: "HTTP API", unit: requests, description: "422 is above a limit, 503 found no room in time.", queries: []boardQuery{
				q(`sum by (endpoint, code) (rate(adapter_api_requests_total{$a}[$__rate_interval]))`, "{{endpoint}} {{code}}")}},
			{title: "Duration of the HTTP API, 99th percentile", unit: seconds, queries: []boardQuery{
				q(`histogram_quantile(0.99, sum by (le, endpoint) (rate(adapter_api_request_duration_seconds_bucket{$a}[$__rate_interval])))`, "{{endpoint}}")}},
			{title: "Remote read, federation and explain", unit: requests, queries: []boardQuery{
				q(`sum by (handler, code) (rate(adapter_http_requests_total{$a, handler=~"read|federate|explain"}[$__rate_interval]))`, "{{handler}} {{code}}")}},
			{title: "Reads at once", unit: count, description: "Those that run or wait, and how many may run.", queries: []boardQuery{
				q(`sum by (instance) (adapter_http_requests_in_flight{$a, handler=~"read|federate|explain"})`, "{{instance}}"),
				q(`max(adapter_http_concurrent_requests_limit{$a, gate="read"})`, "limit")}},
			{title: "Answers of remote read", unit: byteRate, queries: []boardQuery{
				q(`sum by (response) (rate(adapter_read_bytes_total{$a}[$__rate_interval]))`, "{{response}}")}},
			{title: "Series of remote read", unit: perSecond, queries: []boardQuery{
				q(`sum by (response) (rate(adapter_read_series_total{$a}[$__rate_interval]))`, "{{response}}")}},
		}},
		{"PromQL", []panel{
			{title: "Queries at once", unit: count, description: "Those that run or wait, and how many may run.", queries: []boardQuery{
				q(`prometheus_engine_queries{$a}`, "{{instance}}"),
				q(`max(prometheus_engine_queries_concurrent_max{$a})`, "limit")}},
			{title: "Memory of queries", unit: inBytes, description: "At most --query.max-total-memory-bytes.", queries: []boardQuery{
				q(`adapter_query_memory_bytes{$a}`, "{{instance}}")}},
			{title: "Cores that queries wait for", unit: "none", queries: []boardQuery{
				q(`rate(adapter_query_core_wait_seconds_total{$a}[$__rate_interval])`, "{{instance}}")}},
			{title: "Slow, blocked and cancelled queries", unit: perSecond, queries: []boardQuery{
				q(`sum by (kind) (rate(adapter_slow_queries_total{$a}[$__rate_interval]))`, "slow {{kind}}"),
				q(`sum by (kind) (rate(adapter_blocked_queries_total{$a}[$__rate_interval]))`, "blocked {{kind}}"),
				q(`sum by (kind) (rate(adapter_cancelled_queries_total{$a}[$__rate_interval]))`, "cancelled {{kind}}")}},
			{title: "Series and samples selected", unit: perSecond, queries: []boardQuery{
				q(`sum(rate(adapter_engine_selected_series_total{$a}[$__rate_interval]))`, "series"),
				q(`sum(rate(adapter_engine_selected_samples_total{$a}[$__rate_interval]))`, "samples")}},
			{title: "Batches of rows", unit: perSecond, description: "A batch is split if it holds more than was expected.", queries: []boardQuery{
				q(`sum by (result) (rate(adapter_engine_read_batches_total{$a}[$__rate_interval]))`, "{{result}}")}},
		}},
		{"Caches", []panel{
			{title: "Steps of range queries", unit: perSecond, description: "Answered from cached results (hit), or evaluated (miss). Not on Bigtable.", queries: []boardQuery{
				q(`sum by (result) (rate(adapter_results_cache_steps_total{$a}[$__rate_interval]))`, "{{result}}")}},
			{title: "Cached results", unit: inBytes, queries: []boardQuery{q(`adapter_results_cache_bytes{$a}`, "{{instance}}")}},
			{title: "Blocks of cached results dropped", unit: perSecond, queries: []boardQuery{
				q(`sum by (reason) (rate(adapter_results_cache_dropped_blocks_total{$a}[$__rate_interval]))`, "{{reason}}")}},
			{title: "Lists of the index", unit: perSecond, description: "Looked for in memory. Many misses, and lists evicted: see --index.max-memory.", queries: []boardQuery{
				q(`sum by (result) (rate(adapter_index_list_lookups_total{$a}[$__rate_interval]))`, "{{result}}"),
				q(`sum(rate(adapter_index_evicted_lists_total{$a}[$__rate_interval]))`, "evicted")}},
			{title: "Index in memory", unit: inBytes, queries: []boardQuery{q(`adapter_index_memory_bytes{$a}`, "{{instance}}")}},
			{title: "Series and lists of the index in memory", unit: count, queries: []boardQuery{
				q(`adapter_index_memory_series{$a}`, "{{instance}} series"),
				q(`adapter_index_memory_lists{$a}`, "{{instance}} lists")}},
		}},
	}}
}

func storageBoard() board {
	return board{name: "storage", title: "Storage and rollups", sections: []section{
		{"Disk", []panel{
			{title: "Free space", unit: inBytes, description: "Below the floor writes are refused.", queries: []boardQuery{
				q(`adapter_disk_free_bytes{$a}`, "{{instance}} {{path}}"),
				q(`max(adapter_disk_min_free_bytes{$a})`, "floor")}},
			{title: "Size", unit: inBytes, queries: []boardQuery{
				q(`adapter_pebble_disk_bytes{$a}`, "{{instance}} store"),
				q(`adapter_buffer_log_size_bytes{$a}`, "{{instance}} log"),
				q(`max(adapter_retention_limit_bytes{$a})`, "--retention.size, 0 is no limit")}},
			{title: "Writes refused for want of space", unit: perSecond, queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_disk_refused_writes_total{$a}[$__rate_interval]))`, "{{instance}}")}},
			{title: "Snapshots", unit: seconds, description: "Age of the last snapshot since the start, and of those in object storage. Without one it is that of 1970.", queries: []boardQuery{
				q(`time() - adapter_snapshot_last_success_timestamp_seconds{$a}`, "{{instance}}"),
				q(`time() - adapter_snapshot_bucket_last_success_timestamp_seconds{$a}`, "{{instance}} in object storage"),
				q(`time() - adapter_snapshot_bucket_verified_timestamp_seconds{$a}`, "{{instance}} verified")}},
		}},
		{"Embedded store", []panel{
			{title: "Commits, 99th percentile", unit: seconds, description: "Until they are synced.", queries: []boardQuery{
				q(`histogram_quantile(0.99, sum by (le, instance) (rate(adapter_pebble_commit_duration_seconds_bucket{$a}[$__rate_interval])))`, "{{instance}}")}},
			{title: "Flushes and compactions", unit: perSecond, queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_pebble_flushes_total{$a}[$__rate_interval]))`, "{{instance}} flushes"),
				q(`sum by (instance) (rate(adapter_pebble_compactions_total{$a}[$__rate_interval]))`, "{{instance}} compactions")}},
			{title: "Bytes that compactions still have to rewrite", unit: inBytes, queries: []boardQuery{q(`adapter_pebble_compaction_debt_bytes{$a}`, "{{instance}}")}},
			{title: "Memtables", unit: inBytes, queries: []boardQuery{q(`adapter_pebble_memtable_bytes{$a}`, "{{instance}}")}},
			{title: "Trouble", unit: count, description: "In an hour.", queries: []boardQuery{
				q(`increase(adapter_pebble_write_stalls_total{$a}[1h])`, "{{instance}} stalls"),
				q(`increase(adapter_pebble_slow_disk_operations_total{$a}[1h])`, "{{instance}} slow operations"),
				q(`increase(adapter_pebble_background_failures_total{$a}[1h])`, "{{instance}} failures"),
				q(`adapter_pebble_damaged_files{$a}`, "{{instance}} damaged files")}},
			{title: "Expired", unit: count, description: "Days and periods that were deleted as a whole, and cells one by one, in an hour.", queries: []boardQuery{
				q(`increase(adapter_pebble_sweep_drops_total{$a}[1h])`, "{{instance}} days"),
				q(`increase(adapter_pebble_swept_cells_total{$a}[1h])`, "{{instance}} cells")}},
		}},
		{"Rollups", []panel{
			{title: "Rollups behind", unit: seconds, description: "Since when the first day without rollups is over.", queries: []boardQuery{
				q(`adapter_rollup_lag_seconds{$a}`, "{{instance}}")}},
			{title: "Rollups wait", unit: count, description: "1 while they wait for clocks, or samples for the logs of other adapters.", queries: []boardQuery{
				q(`sum by (instance, for) (adapter_rollup_waiting{$a})`, "{{instance}} {{for}}")}},
			{title: "Rows read for rollups", unit: perSecond, queries: []boardQuery{
				q(`sum by (instance) (rate(adapter_rollup_rows_total{$a}[$__rate_interval]))`, "{{instance}}")}},
			{title: "Rollups written", unit: perSecond, queries: []boardQuery{
				q(`sum by (resolution) (rate(adapter_rollup_cells_total{$a}[$__rate_interval]))`, "{{resolution}}"),
				q(`sum(rate(adapter_rollup_failures_total{$a}[$__rate_interval]))`, "failures")}},
		}},
		{"Retention and deletion", []panel{
			{title: "Kept for", unit: seconds, description: "0 is for ever.", queries: []boardQuery{
				q(`max by (resolution) (adapter_retention_limit_seconds{$a})`, "{{resolution}}")}},
			{title: "Next day that goes", unit: seconds, description: "When the next whole day is as old as it is kept, from now. Nothing is shown where all is kept.", queries: []boardQuery{
				q(`max by (resolution) (adapter_retention_next_cut_timestamp_seconds{$a} > 0) - time()`, "{{resolution}}")}},
			{title: "Deletions", unit: count, description: "Hidden from reads and not removed yet.", queries: []boardQuery{
				q(`adapter_deletion_pending{$a}`, "{{instance}}")}},
			{title: "Failures", unit: count, description: "Attempts in an hour that failed and are repeated.", queries: []boardQuery{
				q(`increase(adapter_retention_failures_total{$a}[1h])`, "{{instance}} retention"),
				q(`increase(adapter_retention_rule_failures_total{$a}[1h])`, "{{instance}} rules"),
				q(`increase(adapter_deletion_failures_total{$a}[1h])`, "{{instance}} deletion"),
				q(`increase(adapter_snapshot_failures_total{$a}[1h])`, "{{instance}} snapshots"),
				q(`increase(adapter_snapshot_bucket_failures_total{$a}[1h])`, "{{instance}} looks at snapshots in object storage")}},
		}},
	}}
}

func bigtableBoard() board {
	return board{name: "bigtable", title: "Bigtable", bigtable: true, sections: []section{
		{"Requests", []panel{
			{title: "Requests", unit: requests, description: "Without the retries of the client.", queries: []boardQuery{
				q(`sum by (table, op, result) (rate(adapter_bigtable_requests_total{$a}[$__rate_interval])) > 0`, "{{table}} {{op}} {{result}}")}},
			{title: "Attempts, 99th percentile", unit: seconds, queries: []boardQuery{
				q(`histogram_quantile(0.99, sum by (le, method, table) (rate(adapter_bigtable_attempt_duration_seconds_bucket{$a}[$__rate_interval])))`, "{{method}} {{table}}")}},
			{title: "Attempts by gRPC code", unit: perSecond, description: "ResourceExhausted: more nodes are needed. DeadlineExceeded: no answer in time.", queries: []boardQuery{
				q(`sum by (code) (rate(adapter_bigtable_attempt_duration_seconds_count{$a}[$__rate_interval]))`, "{{code}}")}},
			{title: "Retries", unit: perSecond, queries: []boardQuery{
				q(`sum by (method, table) (rate(adapter_bigtable_retries_total{$a}[$__rate_interval]))`, "{{method}} {{table}}")}},
			{title: "Attempts in flight", unit: count, queries: []boardQuery{
				q(`sum by (instance, method) (adapter_bigtable_attempts_in_flight{$a})`, "{{instance}} {{method}}")}},
			{title: "Bytes", unit: byteRate, queries: []boardQuery{
				q(`sum by (table, op) (rate(adapter_bigtable_bytes_total{$a}[$__rate_interval]))`, "{{table}} {{op}}")}},
			{title: "Row mutations", unit: perSecond, queries: []boardQuery{
				q(`sum by (table, result) (rate(adapter_bigtable_mutations_total{$a}[$__rate_interval]))`, "{{table}} {{result}}")}},
			{title: "Rows read", unit: perSecond, queries: []boardQuery{
				q(`sum by (table) (rate(adapter_bigtable_rows_total{$a}[$__rate_interval]))`, "{{table}}")}},
		}},
		{"Sealing", []panel{
			{title: "Sealing behind", unit: seconds, description: "Age of the oldest window that is not sealed. Up to 26,000 s is usual.", queries: []boardQuery{
				q(`adapter_seal_lag_seconds{$a}`, "{{instance}}")}},
			{title: "Who seals", unit: count, description: "1 for the adapter that seals.", queries: []boardQuery{
				q(`adapter_seal_holds_lease{$a}`, "{{instance}}")}},
			{title: "Rows and chunks", unit: perSecond, queries: []boardQuery{
				q(`sum(rate(adapter_seal_rows_total{$a}[$__rate_interval]))`, "rows"),
				q(`sum(rate(adapter_seal_chunks_total{$a}[$__rate_interval]))`, "chunks"),
				q(`sum(rate(adapter_seal_raw_cells_total{$a}[$__rate_interval]))`, "raw cells"),
				q(`sum(rate(adapter_seal_failures_total{$a}[$__rate_interval]))`, "failures")}},
			{title: "Rows that the last slot walked", unit: ratio, description: "Below 1: a slot is too short.", queries: []boardQuery{
				q(`adapter_seal_walked_ratio{$a}`, "{{instance}}")}},
		}},
		{"Other adapters", []panel{
			{title: "Clocks", unit: seconds, description: "How far the clock of another adapter is ahead, or behind if negative.", queries: []boardQuery{
				q(`adapter_clock_skew_seconds{$a}`, "{{instance}}")}},
			{title: "Clock in doubt", unit: count, queries: []boardQuery{
				q(`adapter_clock_in_doubt{$a}`, "{{instance}}"),
				q(`rate(adapter_clock_failures_total{$a}[$__rate_interval])`, "{{instance}} failures")}},
			{title: "Logs that the store waits for", unit: count, queries: []boardQuery{
				q(`adapter_buffer_other_logs{$a}`, "{{instance}}")}},
		}},
	}}
}

func tenantsBoard() board {
	return board{name: "tenants", title: "Tenants", tenants: true, sections: []section{
		{"Limits", []panel{
			{title: "Limits in use", unit: ratio, description: "At 100 % writes, or new series, are refused.", queries: []boardQuery{
				q(`max by (tenant, limit) (adapter_limit_used_ratio{$a, tenant=~"$tenant"})`, "{{tenant}} {{limit}}")}},
			{title: "Refused", unit: perSecond, description: "Writes and series above a limit.", queries: []boardQuery{
				q(`sum by (tenant, limit) (rate(adapter_limit_exceeded_total{$a, tenant=~"$tenant", result="refused"}[$__rate_interval]))`, "{{tenant}} {{limit}}")}},
			{title: "Tracked", unit: perSecond, description: "What limits that are only tracked would refuse.", queries: []boardQuery{
				q(`sum by (tenant, limit) (rate(adapter_limit_exceeded_total{$a, tenant=~"$tenant", result="tracked"}[$__rate_interval]))`, "{{tenant}} {{limit}}")}},
			{title: "File of limits", unit: count, description: "1 if it is right, 0 if the limits before it stay in force.", queries: []boardQuery{
				q(`adapter_limits_file_last_reload_successful{$a}`, "{{instance}}")}},
		}},
		{"High availability", []panel{
			{title: "Elected replicas", unit: count, description: "1 for the replica of each cluster whose samples are stored.", queries: []boardQuery{
				q(`max by (tenant, cluster, replica) (adapter_ha_elected_replica{$a, tenant=~"$tenant"})`, "{{tenant}} {{cluster}} {{replica}}")}},
			{title: "Samples of other replicas", unit: perSecond, description: "Acknowledged and not stored.", queries: []boardQuery{
				q(`sum by (tenant, cluster) (rate(adapter_ha_deduplicated_samples_total{$a, tenant=~"$tenant"}[$__rate_interval]))`, "{{tenant}} {{cluster}}")}},
		}},
		{"Dropped tenants", []panel{
			{title: "Failures to remove rows", unit: count, description: "Attempts in an hour, which are repeated.", queries: []boardQuery{
				q(`increase(adapter_tenant_removal_failures_total{$a}[1h])`, "{{instance}}")}},
		}},
	}}
}

func rulesBoard() board {
	return board{name: "rules", title: "Rules", sections: []section{
		{"Now", []panel{
			{title: "Adapters that evaluate", kind: "stat", unit: noUnit, description: "One of each store, or of each tenant, by a lease.", queries: []boardQuery{
				q(`sum(adapter_rules_evaluating{$a})`, "adapters")}},
			{title: "Groups", kind: "stat", unit: noUnit, description: "Groups of rules that are evaluated.", queries: []boardQuery{
				q(`count(prometheus_rule_group_interval_seconds{$a})`, "groups")}},
			{title: "Behind", kind: "stat", unit: seconds, description: "What is due and not recorded, of the group that has most of it.", queries: []boardQuery{
				q(`max(adapter_rules_behind_seconds{$a})`, "behind")}},
			{title: "Alerts waiting", kind: "stat", unit: noUnit, description: "Alerts that are not sent to Alertmanagers yet.", queries: []boardQuery{
				q(`sum(prometheus_notifications_queue_length{$a})`, "alerts")}},
		}},
		{"Recording rules", []panel{
			{title: "Groups behind", unit: seconds, description: "What is due and not recorded.", queries: []boardQuery{
				q(`max by (tenant, rule_group) (adapter_rules_behind_seconds{$a})`, "{{tenant}} {{rule_group}}")}},
			{title: "Steps recorded", unit: perSecond, description: "Steps that were evaluated and stored; more than one an interval where a group catches up.", queries: []boardQuery{
				q(`sum by (tenant, rule_group) (rate(adapter_rules_recorded_steps_total{$a}[$__rate_interval]))`, "{{tenant}} {{rule_group}}")}},
			{title: "Failures", unit: perSecond, description: "Of an expression: its step is skipped. Of the store: it is repeated.", queries: []boardQuery{
				q(`sum by (tenant, rule_group, reason) (rate(adapter_rules_failures_total{$a}[$__rate_interval]))`, "{{tenant}} {{rule_group}} {{reason}}")}},
			{title: "Corrected after late samples", unit: perSecond, queries: []boardQuery{
				q(`sum by (tenant) (rate(adapter_rules_reevaluated_steps_total{$a}[$__rate_interval]))`, "{{tenant}} steps evaluated anew"),
				q(`sum by (tenant) (rate(adapter_rules_corrected_samples_total{$a}[$__rate_interval]))`, "{{tenant}} samples corrected")}},
		}},
		{"Evaluations and alerts", []panel{
			{title: "Duration of evaluations, of the interval", unit: ratio, description: "Of a group's alerting rules. Above 1 evaluations are missed.", queries: []boardQuery{
				q(`max by (tenant, rule_group) (prometheus_rule_group_last_duration_seconds{$a} / prometheus_rule_group_interval_seconds{$a})`, "{{tenant}} {{rule_group}}")}},
			{title: "Evaluations missed or failed", unit: perSecond, queries: []boardQuery{
				q(`sum by (tenant, rule_group) (rate(prometheus_rule_evaluation_failures_total{$a}[$__rate_interval]))`, "{{tenant}} {{rule_group}} failed"),
				q(`sum by (tenant, rule_group) (rate(prometheus_rule_group_iterations_missed_total{$a}[$__rate_interval]))`, "{{tenant}} {{rule_group}} missed")}},
			{title: "Alerts sent", unit: perSecond, description: "To each Alertmanager, and those that were dropped or whose request failed.", queries: []boardQuery{
				q(`sum by (alertmanager) (rate(prometheus_notifications_sent_total{$a}[$__rate_interval]))`, "{{alertmanager}} sent"),
				q(`sum(rate(prometheus_notifications_dropped_total{$a}[$__rate_interval]))`, "dropped"),
				q(`sum by (alertmanager) (rate(prometheus_notifications_errors_total{$a}[$__rate_interval]))`, "{{alertmanager}} failed")}},
		}},
	}}
}
