package main

import (
	"slices"
	"strings"
	"testing"
)

// alwaysEffective are the flags that have an effect in all modes.
var alwaysEffective = []string{
	"web.listen-address", "web.admin-listen-address", "web.config.file", "web.users-file", "web.health-without-credentials", "web.external-url", "web.route-prefix", "web.cors.origin", "web.read-only-boards", "web.trace-url", "web.enable-admin-api", "shutdown.timeout", "shutdown.delay", "mode", "fleet.listen-address",
	"storage.backend", "schema.resource-label", "tenancy", "retention.resolution-raw", "retention.resolution-5m", "retention.resolution-1h", "retention.rules",
	"buffer.enabled", "seal.enabled", "rollup.enabled",
	"write.max-future", "write.timeout", "write.max-concurrent", "write.max-body-bytes", "write.cached-series",
	"index.written-series", "index.max-memory", "read.max-series", "read.max-samples", "read.max-frame-bytes", "read.max-concurrent", "read.timeout",
	"current.lookback", "current.flush-interval", "ha.cluster-label", "ha.replica-label",
	"query.timeout", "query.max-samples", "query.max-memory-bytes", "query.max-total-memory-bytes", "query.max-concurrency",
	"query.lookback-delta", "query.default-evaluation-interval", "query.log-slower-than", "query.block-file", "enable-feature", "otlp.config-file", "tracing.config.file", "limits.file",
	"query.results-cache-bytes", // on Bigtable without a fleet its only value is 0
	"rules.file", "rules.evaluation-interval", "rules.query-offset", "rules.reevaluate", "alertmanager.url", "alertmanager.config.file",
	"heal.from", "heal.last", "heal.interval", "heal.probe", "heal.match", "heal.http.config.file",
	"auto-gomemlimit", "auto-gomemlimit.ratio",
	"self-scrape-interval", "log.level", "log.format", "objstore.config.file",
}

// TestModes: a flag without an effect in the modes that are chosen is refused by name, and the message names the flag that
// chooses another mode. Each flag is either such a flag or has an effect everywhere.
func TestModes(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	embedded := []string{"--storage.backend=embedded"}
	with := func(args []string, more ...string) []string { return append(slices.Clip(args), more...) }
	values := map[string]string{
		"bigtable.connections": "2", "bigtable.create-tables": "", "bigtable.direct-access": "", "bigtable.client-metrics": "",
		"index.refresh": "10s", "seal.rows-per-second": "10", "seal.workers": "2", "retention.size": "1GiB", "storage.min-free-space": "1MiB",
		"buffer.fsync": "1s", "buffer.log": "bigtable", "buffer.max-log": "1GiB", "buffer.max-memory": "1GiB", "rollup.rows-per-second": "10", "ha.failover": "1m", "otlp.delta.max-stale": "1h", "otlp.delta.max-streams": "10", "tenancy.create": "", "tenancy.from": "header",
		"tenancy.keep-label": "", "fleet.partial-queries": "deny", "fleet.partial-reads": "allow", "fleet.address": "http://h:1",
	}
	// In the order of modes: command lines of other modes with what the message names, and a command line of the mode.
	lines := [][]struct {
		args  []string
		names string
	}{
		{{bigtable, "--storage.backend=embedded"}},
		{{embedded, "--storage.backend=bigtable"}, {with(embedded, "--no-buffer.enabled"), "--storage.backend=bigtable"}},
		{{bigtable, "--buffer.enabled"}, {with(bigtable, "--no-buffer.enabled"), "--buffer.enabled"}},
		{{bigtable, "--buffer.enabled"}},
		{{bigtable, "--buffer.enabled"}, {with(bigtable, "--no-buffer.enabled"), "--buffer.enabled"}, {with(embedded, "--no-buffer.enabled"), "--buffer.enabled"}},
		{{with(bigtable, "--no-seal.enabled"), "--no-seal.enabled"}, {with(bigtable, "--buffer.enabled"), "--buffer.enabled"}},
		{{with(bigtable, "--no-rollup.enabled"), "--no-rollup.enabled"}, {with(embedded, "--no-rollup.enabled"), "--no-rollup.enabled"},
			{with(embedded, "--retention.resolution-5m=off", "--retention.resolution-1h=off"), "--retention.resolution-5m=off"}},
		{{with(bigtable, "--buffer.enabled"), "--fleet.listen-address"}},
		{{with(bigtable, "--buffer.enabled", "--fleet.listen-address=127.0.0.1:0", "--buffer.log=bigtable"), "--buffer.log=bigtable"}},
		{{embedded, "--ha.cluster-label"}, {bigtable, "--ha.cluster-label"}},
		{{embedded, "--tenancy"}, {bigtable, "--tenancy"}},
		{{embedded, "--tenancy.from=label"}, {with(bigtable, "--tenancy"), "--tenancy.from=label"}},
		{{embedded, "--tenancy"}, {bigtable, "--tenancy"}},
		{{embedded, "--enable-feature=otlp-deltatocumulative"}, {with(bigtable, "--enable-feature=otlp-native-delta-ingestion"), "--enable-feature=otlp-deltatocumulative"}},
		{{embedded, "--web.enable-admin-api"}, {bigtable, "--web.enable-admin-api"}},
	}
	effective := [][]string{
		embedded, bigtable, with(bigtable, "--buffer.enabled"), with(bigtable, "--buffer.enabled"), with(bigtable, "--buffer.enabled"),
		bigtable, embedded, with(bigtable, "--buffer.enabled", "--fleet.listen-address=127.0.0.1:0"), with(bigtable, "--buffer.enabled"), with(embedded, "--ha.cluster-label=c", "--ha.replica-label=r"), with(embedded, "--tenancy"), with(embedded, "--tenancy", "--tenancy.from=label"), with(embedded, "--tenancy"),
		with(embedded, "--enable-feature=otlp-deltatocumulative"), with(embedded, "--web.enable-admin-api"),
	}
	if len(lines) != len(modes) || len(effective) != len(modes) {
		t.Fatalf("%d modes, and %d and %d lines of tests", len(modes), len(lines), len(effective))
	}
	known := slices.Clone(alwaysEffective)
	for i, m := range modes {
		known = append(known, m.flags...)
		for _, name := range m.flags {
			flag := "--" + name
			if value, isListed := values[name]; !isListed {
				flag += "=x"
			} else if value != "" {
				flag += "=" + value
			}
			for _, line := range lines[i] {
				args := with(line.args, flag)
				if _, err := parseFlags(args); err == nil || !strings.Contains(err.Error(), "--"+name+" ") || !strings.Contains(err.Error(), line.names) {
					t.Errorf("%q: the error %v does not name --%s and %s", args, err, name, line.names)
				}
			}
			isThere := func(arg string) bool { return strings.HasPrefix(arg, "--"+name+"=") }
			args := append(slices.DeleteFunc(slices.Clone(effective[i]), isThere), flag)
			if _, err := parseFlags(args); err != nil && !strings.Contains(err.Error(), "disable_grpc_modules") {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name := range o.api.Flags {
		if !slices.Contains(known, name) {
			t.Errorf("it is not said where --%s has an effect: in modes, or in the list of this test", name)
		}
	}
	for _, name := range known {
		if _, exists := o.api.Flags[name]; !exists {
			t.Errorf("there is no flag --%s", name)
		}
	}
}

// TestSharedFlags: a command that does not serve takes the flags of one that does, such as from a file.
func TestSharedFlags(t *testing.T) {
	for _, args := range [][]string{
		{"estimate", "--prometheus=http://localhost:9090", "--buffer.max-log=1GiB"},
		{"compact", "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--no-seal.enabled", "--seal.workers=2", "--rollup.rows-per-second=10", "--no-rollup.enabled"},
		{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--no-buffer.enabled", "--buffer.path=old"},
	} {
		if _, err := parseFlags(args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}
