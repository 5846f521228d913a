package main

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/units"
)

// TestResultsCacheBytes: the cache has a size on the embedded store, and is off on Bigtable where others may write that do not tell.
func TestResultsCacheBytes(t *testing.T) {
	const flag = "--query.results-cache-bytes"
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	for _, tt := range []struct {
		name    string
		args    []string
		want    units.Base2Bytes
		refused string
	}{
		{"default", nil, 64 * units.MiB, ""},
		{"larger", []string{flag + "=1GiB"}, units.GiB, ""},
		{"off", []string{flag + "=0"}, 0, ""},
		{"malformed", []string{flag + "=many"}, 0, flag + "=many: give a size"},
		{"on Bigtable", bigtable, 0, ""},
		{"off on Bigtable", append(bigtable, flag+"=0"), 0, ""},
		{"given on Bigtable", append(bigtable, flag+"=64MiB"), 0, flag + " is for the embedded store and for fleets"},
		{"of a reader", append(bigtable, "--mode=read"), 64 * units.MiB, ""},
		{"of a member", append(bigtable, "--buffer.enabled", "--buffer.path=b", "--fleet.listen-address=127.0.0.1:0", flag+"=1MiB"), units.MiB, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := parseOrRefuse(t, tt.args, tt.refused)
			if o == nil {
				return
			}
			if got := o.api.Flags["query.results-cache-bytes"]; o.resultsCache.Base2Bytes != tt.want || got != tt.want.String() {
				t.Errorf("%s, and the API says %s, want %s", o.resultsCache, got, tt.want)
			}
		})
	}
}

// TestEvaluationInterval: the step of subqueries is a positive number of milliseconds.
func TestEvaluationInterval(t *testing.T) {
	const flag = "--query.default-evaluation-interval"
	for _, tt := range []struct {
		name    string
		args    []string
		want    time.Duration
		refused string
	}{
		{"left out", nil, time.Minute, ""},
		{"given", []string{flag + "=15s"}, 15 * time.Second, ""},
		{"the least", []string{flag + "=1ms"}, time.Millisecond, ""},
		{"nothing", []string{flag + "=0s"}, 0, flag + " is 0"},
		{"backwards", []string{flag + "=-1m"}, 0, flag + " is negative"},
		{"less than a millisecond", []string{flag + "=500us"}, 0, flag + "=500µs: give it whole milliseconds"},
		{"part of a millisecond", []string{flag + "=1.5ms"}, 0, flag + "=1.5ms: give it whole milliseconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := parseOrRefuse(t, tt.args, tt.refused)
			if o == nil {
				return
			}
			if o.api.EvaluationInterval != tt.want {
				t.Errorf("interval %s, want %s", o.api.EvaluationInterval, tt.want)
			}
			if got := o.api.Flags["query.default-evaluation-interval"]; got != tt.want.String() {
				t.Errorf("the API says %s, want %s", got, tt.want)
			}
		})
	}
}

// TestLogSlowerThan: queries of ten seconds are logged unless a flag says otherwise, and 0 is
// never.
func TestLogSlowerThan(t *testing.T) {
	const flag = "--query.log-slower-than"
	for _, tt := range []struct {
		args    []string
		want    time.Duration
		refused string
	}{
		{nil, 10 * time.Second, ""},
		{[]string{flag + "=1500ms"}, 1500 * time.Millisecond, ""},
		{[]string{flag + "=0s"}, 0, ""},
		{[]string{flag + "=-1s"}, 0, flag + " is negative"},
	} {
		if o := parseOrRefuse(t, tt.args, tt.refused); o != nil && o.slowerThan != tt.want {
			t.Errorf("%v: %s, want %s", tt.args, o.slowerThan, tt.want)
		}
	}
}

func TestHealingFlags(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		refused string
	}{
		{[]string{"--heal.from=http://p:9090", "--heal.match={job=\"x\"}"}, ""},
		{[]string{"--heal.from=http://p:9090", "--mode=read", "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, "--heal.from is for an adapter that writes"},
		{[]string{"--heal.from=p:9090"}, "--heal.from=p:9090: give a URL such as http://localhost:9090"},
		{[]string{"--heal.from=http://u:secret@p:9090"}, "--heal.from=http://u:xxxxx@p:9090: credentials are given in --heal.http.config.file"},
		{[]string{"--heal.from=http://p:9090", "--heal.probe=up{"}, "--heal.probe=up{: "},
		{[]string{"--heal.from=http://p:9090", "--heal.match=x["}, "--heal.match: "},
		{[]string{"--heal.from=http://p:9090", "--heal.last=5s"}, "--heal.last has to be 1m or more"},
		{[]string{"--heal.from=http://p:9090", "--heal.from=http://p:9090/api/v1/read"}, "is given twice"},
		{[]string{"--heal.from=http://u:secret@p:9090", "--tenancy"}, "--heal.from=http://u:xxxxx@p:9090: in a store with tenants give it as TENANT=URL"},
		{[]string{"--alertmanager.url=http://u:secret@p:9090"}, "--alertmanager.url=http://u:xxxxx@p:9090: credentials are given in --alertmanager.config.file"},
	} {
		parseOrRefuse(t, tt.args, tt.refused)
	}
	o := parseOrRefuse(t, []string{"--tenancy", "--heal.from=team=http://p:9090/sub"}, "")
	if s := o.healing.senders; len(s) != 1 || s[0].tenant != "team" || s[0].server.URL != "http://p:9090/sub/api/v1/read" {
		t.Errorf("%+v", s)
	}
}

// parseOrRefuse parses flags. If refused is not empty it wants an error with that text, and
// returns nil.
func parseOrRefuse(t *testing.T, args []string, refused string) *options {
	t.Helper()
	o, err := parseFlags(args)
	switch {
	case refused == "" && err != nil:
		t.Fatalf("%v: %v", args, err)
	case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
		t.Errorf("%v: error %v, want %s", args, err, refused)
	case refused == "":
		return o
	}
	return nil
}
