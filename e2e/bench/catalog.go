package main

import (
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// A panel is a query of a dashboard, of the metrics that a host of the workload has. $__interval, $__rate_interval and
// $__range are those of Grafana.
type panel struct {
	// of says which public dashboards ask for such a panel, of their own metrics.
	of, text string
	// isStat is a panel of one value, at the end of the range.
	isStat bool
}

// catalog are the usual panels, one of each shape.
var catalog = []panel{
	// Counters: what is asked most.
	{of: "node: CPU by mode", text: `sum by (mode) (rate(node_cpu_seconds_total[$__rate_interval]))`},
	{of: "node: CPU busy of each host", text: `1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[$__rate_interval]))`},
	{of: "node mixin: CPU, a fixed range", text: `1 - avg without (cpu, mode) (rate(node_cpu_seconds_total{mode="idle"}[5m]))`},
	{of: "node: CPU, in its full dashboard", text: `sum by (instance) (irate(node_cpu_seconds_total{mode="system"}[$__rate_interval]))`},
	{of: "node: network traffic", text: `rate(node_network_receive_bytes_total{device!="lo"}[$__rate_interval]) * 8`},
	{of: "node: disk latency, a ratio of two", text: `rate(node_disk_read_time_seconds_total[$__rate_interval]) / rate(node_disk_reads_completed_total[$__rate_interval])`},
	{of: "node, MySQL: a range of the interval", text: `rate(node_context_switches_total[$__interval])`},
	{of: "MySQL: either of two ranges", text: `rate(node_forks_total[$__interval]) or irate(node_forks_total[5m])`},
	{of: "Kubernetes: the largest five", text: `topk(5, sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval])))`},
	{of: "Kubernetes: of what may be used", text: `sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval])) / on (instance) sum by (instance) (process_max_fds)`},
	{of: "Kubernetes: labels of an info metric", text: `rate(node_intr_total[$__rate_interval]) * on (instance) group_left (release) node_uname_info`},
	{of: "Redis: hits of all", text: `sum(increase(go_memstats_mallocs_total[1m])) / (sum(increase(go_memstats_mallocs_total[1m])) + sum(increase(go_memstats_frees_total[1m])))`},
	{of: "JVM, Go: mean pause", text: `rate(http_request_duration_seconds_sum[$__rate_interval]) / rate(http_request_duration_seconds_count[$__rate_interval])`},
	{of: "Alertmanager: restarts", text: `resets(process_cpu_seconds_total[$__interval])`},
	// Services.
	{of: "HTTP: requests by handler", text: `sum by (handler) (rate(http_request_duration_seconds_count[$__rate_interval]))`},
	{of: "HTTP: share of errors", text: `sum(rate(http_request_duration_seconds_count{code=~"5.."}[$__rate_interval])) / sum(rate(http_request_duration_seconds_count[$__rate_interval]))`},
	{of: "HTTP: errors, 0 where there are none", text: `sum(rate(http_request_duration_seconds_count{code="404"}[$__rate_interval])) or vector(0)`},
	{of: "HTTP: 99 % are faster", text: `histogram_quantile(0.99, sum by (le) (rate(http_request_duration_seconds_bucket[$__rate_interval])))`},
	{of: "HTTP: 95 % of each handler", text: `histogram_quantile(0.95, sum by (le, handler) (rate(http_request_duration_seconds_bucket[$__rate_interval])))`},
	{of: "HTTP: share below a bound", text: `sum(rate(http_request_duration_seconds_bucket{le="0.25"}[$__rate_interval])) / sum(rate(http_request_duration_seconds_count[$__rate_interval]))`},
	{of: "HTTP: beside a week ago", text: `sum(rate(http_request_duration_seconds_count[$__rate_interval])) / sum(rate(http_request_duration_seconds_count[$__rate_interval] offset 1w))`},
	{of: "HTTP: as a bar of each interval", text: `sum by (code) (increase(http_request_duration_seconds_count[$__interval]))`},
	// Gauges.
	{of: "node: load", text: `node_load1`},
	{of: "node: memory used", text: `node_memory_MemTotal_bytes - node_memory_MemFree_bytes - node_memory_Cached_bytes - node_memory_Buffers_bytes`},
	{of: "node: memory used, of all", text: `1 - sum(node_memory_MemAvailable_bytes) / sum(node_memory_MemTotal_bytes)`},
	{of: "node: space used, compared", text: `100 - 100 * node_filesystem_avail_bytes / node_filesystem_size_bytes > 50`},
	{of: "node: uptime", text: `node_time_seconds - node_boot_time_seconds`},
	{of: "Go: goroutines", text: `go_goroutines`},
	{of: "Go: pauses", text: `max by (quantile) (go_gc_duration_seconds)`},
	{of: "Redis, MySQL: most of each interval", text: `max_over_time(process_open_fds[$__interval])`},
	{of: "MySQL: mean of each interval", text: `avg_over_time(process_resident_memory_bytes[$__interval])`},
	{of: "RabbitMQ: change of a queue", text: `sum by (queue) (delta(queue_depth[$__interval]))`},
	{of: "Kubernetes: names cut", text: `sum by (host) (label_replace(node_load5, "host", "$1", "instance", "(.+):.*"))`},
	{of: "blackbox: success", text: `avg by (job) (up)`},
	{of: "blackbox: targets that are down", text: `count(up == 0) or vector(0)`},
	{of: "blackbox: how often it changes", text: `changes(up[$__interval])`},
	{of: "alerts: nothing there", text: `absent(node_load1{instance="gone"})`},
	{of: "alerts: no target behind it", text: `node_load15 unless on (instance) (up == 1)`},
	// Panels of one value.
	{of: "stat: uptime in the range", text: `avg_over_time(up{job="shop-api"}[$__range])`, isStat: true},
	{of: "stat: all requests of the range", text: `sum(increase(http_request_duration_seconds_count[$__range]))`, isStat: true},
	{of: "stat: the highest load", text: `max(max_over_time(node_load1[$__range]))`, isStat: true},
	{of: "stat: the highest rate", text: `max_over_time(sum(rate(http_request_duration_seconds_count[$__rate_interval]))[$__range:$__interval])`, isStat: true},
	// What only samples tell.
	{of: "node: full in a day", text: `predict_linear(node_filesystem_free_bytes{mountpoint="/"}[6h], 86400)`},
	{of: "node: slope", text: `deriv(node_memory_MemFree_bytes[$__rate_interval])`},
	{of: "blackbox: 95 % of each interval", text: `quantile_over_time(0.95, queue_wait_seconds[$__interval])`},
	{of: "anomalies: spread of each interval", text: `stddev_over_time(node_load1[$__interval])`},
}

// A zoom is the range of time of a dashboard.
type zoom struct {
	name string
	span time.Duration
	// interval is the $__interval that Grafana takes for a graph 1,100 pixels wide, at least a scrape each 15 s.
	interval time.Duration
}

const hours = time.Hour

var zooms = []zoom{
	{"1h", hours, 15 * time.Second}, {"24h", 24 * hours, time.Minute}, {"7d", 7 * 24 * hours, 10 * time.Minute},
	{"30d", 30 * 24 * hours, 30 * time.Minute}, {"1y", 365 * 24 * hours, 6 * hours},
}

// query returns the text of a panel with what Grafana puts into it.
func (z zoom) query(p panel) string {
	const scrape = 15 * time.Second
	text := func(d time.Duration) string { return model.Duration(d).String() }
	return strings.NewReplacer(
		"$__rate_interval", text(max(z.interval+scrape, 4*scrape)), "$__interval", text(z.interval), "$__range", text(z.span),
	).Replace(p.text)
}
