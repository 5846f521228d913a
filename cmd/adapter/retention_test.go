package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
)

// TestRetentionFlags: samples are kept for ever unless a flag says otherwise, and then for
// three days at least.
func TestRetentionFlags(t *testing.T) {
	const flag = "--retention.resolution-raw"
	for _, tt := range []struct {
		args    []string
		want    time.Duration
		text    string
		refused string
	}{
		{nil, 0, "for ever", ""},
		{[]string{flag + "=0"}, 0, "for ever", ""},
		{[]string{flag + "=0s"}, 0, "for ever", ""},
		{[]string{flag + "=3d"}, 72 * time.Hour, "3d", ""},
		{[]string{flag + "=90d"}, 90 * 24 * time.Hour, "90d", ""},
		{[]string{flag + "=2y"}, 2 * 365 * 24 * time.Hour, "2y", ""},
		{[]string{flag + "=1w12h"}, 180 * time.Hour, "7d12h", ""},
		{[]string{flag + "=71h59m59s999ms"}, 0, "", flag + "=2d23h59m59s999ms is too short: give it 3d or more"},
		{[]string{flag + "=1ms"}, 0, "", flag + "=1ms is too short"},
		{[]string{flag + "=3"}, 0, "", flag + "=3: "},
		{[]string{flag + "=-3d"}, 0, "", flag + "=-3d: "},
		{[]string{flag + "="}, 0, "", flag + " is empty"},
		{[]string{"--retention.size=10GiB"}, 0, "10GiB", ""},
		{[]string{"--retention.size=10GiB", flag + "=30d"}, 30 * 24 * time.Hour, "30d or 10GiB", ""},
		{[]string{"--retention.size=-1B"}, 0, "", "--retention.size=-1B: give a size such as 4GiB"},
		{[]string{"--retention.size=10GiB", "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, 0, "", "--retention.size is for the embedded store"},
	} {
		o, err := parseFlags(tt.args)
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v: error %v, want %s", tt.args, err, tt.refused)
			}
		case err != nil || time.Duration(o.retention.raw) != tt.want || o.retention.text() != tt.text:
			t.Errorf("%v: %s, %v", tt.args, o.retention.raw, err)
		}
	}
}

// TestSampleAge: of the ages of a store those of samples count, not those of exemplars and of
// other tables.
func TestSampleAge(t *testing.T) {
	const day = 24 * time.Hour
	tables := bucketstore.Tables(bucketstore.Retention{})
	if got := sampleAge(tables); got != 0 {
		t.Errorf("for ever: %s", got)
	}
	for i, f := range tables[bucketstore.Metric].Families {
		tables[bucketstore.Metric].Families[i].MaxAge = map[string]time.Duration{"e": day, "c": 9 * day, "r2": 8 * day}[f.Name]
	}
	if got := sampleAge(tables); got != 8*day {
		t.Errorf("%s, want 8 days", got)
	}
	o := &options{backend: backendBigtable}
	o.retention.raw = model.Duration(10 * day)
	if got := sampleAge(o.tables()); got != 17*day {
		t.Errorf("new tables keep samples for %s, want 17 days", got)
	}
	o.backend = backendEmbedded
	if got := sampleAge(o.tables()); got != 0 {
		t.Errorf("the embedded store is to delete samples by age, after %s", got)
	}
}
