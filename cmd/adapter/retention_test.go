package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/timeline"
	"github.com/promtable/promtable/series/rollup"
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

// TestRollupFlags: rollups are kept for ever unless a flag says otherwise, and each as long as
// what it is made of or longer.
func TestRollupFlags(t *testing.T) {
	const (
		day     = 24 * time.Hour
		r, m, h = "--retention.resolution-raw=", "--retention.resolution-5m=", "--retention.resolution-1h="
	)
	for _, tt := range []struct {
		args    []string
		want    bucketstore.Retention
		refused string
	}{
		{nil, bucketstore.Retention{}, ""},
		{[]string{r + "90d"}, bucketstore.Retention{90 * day, 0, 0}, ""},
		{[]string{r + "90d", m + "1y", h + "2y"}, bucketstore.Retention{90 * day, 365 * day, 730 * day}, ""},
		{[]string{r + "90d", m + "90d", h + "90d"}, bucketstore.Retention{90 * day, 90 * day, 90 * day}, ""},
		{[]string{r + "90d", m + "1y", h + "0"}, bucketstore.Retention{90 * day, 365 * day, 0}, ""},
		{[]string{r + "90d", m + "off"}, bucketstore.Retention{90 * day, timeline.Off, 0}, ""},
		{[]string{r + "90d", m + "off", h + "off"}, bucketstore.Retention{90 * day, timeline.Off, timeline.Off}, ""},
		{[]string{m + "1y", h + "off", r + "5d"}, bucketstore.Retention{5 * day, 365 * day, timeline.Off}, ""},
		{[]string{m + "off", h + "off"}, bucketstore.Retention{0, timeline.Off, timeline.Off}, ""},
		{[]string{m + "1y"}, bucketstore.Retention{}, m + "1y is shorter than --retention.resolution-raw=0s"},
		{[]string{r + "90d", m + "89d"}, bucketstore.Retention{}, m + "89d is shorter than " + r + "90d"},
		{[]string{r + "90d", h + "1y"}, bucketstore.Retention{}, h + "1y is shorter than --retention.resolution-5m=0s"},
		{[]string{r + "90d", m + "2y", h + "1y"}, bucketstore.Retention{}, h + "1y is shorter than " + m + "2y"},
		{[]string{r + "90d", m + "off", h + "30d"}, bucketstore.Retention{}, h + "30d is shorter than " + r + "90d"},
		{[]string{m + "Off"}, bucketstore.Retention{}, m + "Off: "},
		{[]string{h + "-1ns"}, bucketstore.Retention{}, h + "-1ns: "},
		{[]string{h}, bucketstore.Retention{}, "--retention.resolution-1h is empty"},
	} {
		o, err := parseFlags(tt.args)
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v: error %v, want %s", tt.args, err, tt.refused)
			}
		case err != nil || o.retention.keep() != tt.want:
			t.Errorf("%v: %v, %v", tt.args, o.retention.keep(), err)
		}
	}
}

// TestStoreAges: of the ages of a store those of samples and rollups count, not those of
// exemplars and of other tables.
func TestStoreAges(t *testing.T) {
	const day = 24 * time.Hour
	tables := bucketstore.Tables(bucketstore.Retention{})
	if got := storeAges(tables); got != (bucketstore.Retention{}) {
		t.Errorf("for ever: %s", got)
	}
	for i, f := range tables[bucketstore.Metric].Families {
		tables[bucketstore.Metric].Families[i].MaxAge = map[string]time.Duration{"e": day, "c": 9 * day, "r2": 8 * day, "5m": 30 * day}[f.Name]
	}
	if got := storeAges(tables); got != (bucketstore.Retention{8 * day, 30 * day, 0}) {
		t.Errorf("%s, want 8 and 30 days", got)
	}
	o := &options{backend: backendBigtable}
	o.retention.raw, o.retention.rollups[rollup.FiveMinutes] = model.Duration(10*day), rollupAge(timeline.Off)
	if got := storeAges(o.tables()); got != (bucketstore.Retention{17 * day, 17 * day, 0}) {
		t.Errorf("new tables keep samples for %s, want 17 days, and rollups of 1h for ever", got)
	}
	o.backend = backendEmbedded
	if got := storeAges(o.tables()); got != (bucketstore.Retention{}) {
		t.Errorf("the embedded store is to delete samples by age, after %s", got)
	}
}
