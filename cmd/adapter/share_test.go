package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/bucketstore/meta"
)

// apply runs schema apply with these flags, and returns what it prints. It wants an error with the text refused, unless that is empty.
func (f *testFleet) apply(refused string, args ...string) string {
	f.Helper()
	o := parseOrRefuse(f.T, append([]string{"schema", "apply", "--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, args...), "")
	var out bytes.Buffer
	o.out, o.now = &out, f.now
	s := schemaApply{o: o}
	if len(o.resolutions()) > 0 {
		s.unrolled = s.unreleased
	}
	err := s.run(f.Context())
	if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
		f.Fatalf("schema apply %v: error %v, want %q; the output is\n%s", args, err, refused, &out)
	}
	return out.String()
}

// advance lets an adapter do what it does at an interval.
func (a *fleetAdapter) advance() {
	a.f.Helper()
	if err := a.retention.Advance(a.f.Context()); err != nil {
		a.f.Fatal(err)
	}
}

// TestSharedRetention: an adapter that would keep samples for less long than others of the store does not start. The refusal names the flag,
// both times and the command.
func TestSharedRetention(t *testing.T) {
	const r, m, h = "--retention.resolution-raw=", "--retention.resolution-5m=", "--retention.resolution-1h="
	for _, tt := range []struct {
		name          string
		first, second []string
		refused       string
	}{
		{"the same", []string{r + "30d"}, []string{r + "30d"}, ""},
		{"for ever, and shorter", nil, []string{r + "3d"}, r[:len(r)-1] + ": this adapter would keep 3d, and META/schema says that all adapters of the store keep for ever"},
		{"shorter", []string{r + "30d"}, []string{r + "29d"}, "would keep 29d, and META/schema says that all adapters of the store keep 30d"},
		{"longer", []string{r + "30d"}, []string{r + "31d"}, ""},
		{"longer, for ever", []string{r + "30d"}, nil, ""},
		{"rollups for less long", []string{r + "3d"}, []string{r + "3d", m + "90d", h + "1y"}, m[:len(m)-1] + ": this adapter would keep 90d,"},
		{"no rollups", nil, []string{m + "off"}, m[:len(m)-1] + ": this adapter would keep off,"},
		{"rollups where there were none", []string{m + "off", h + "off"}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t)
			f.start("", tt.first...).stop()
			second := f.start(tt.refused, tt.second...)
			if tt.refused == "" {
				second.stop()
			} else {
				f.start("run adapter schema apply with the flags of this one", tt.second...)
			}
			f.start("", tt.first...)
		})
	}
}

// TestRetentionOfUnsharedStore: after a first start that died early META does not say how long samples are kept. Then the policies do.
func TestRetentionOfUnsharedStore(t *testing.T) {
	f := newFleet(t)
	o := parseOrRefuse(t, []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}, "")
	rows, err := openStore(t.Context(), o, log.NewNopLogger(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := newSchema(o)
	if err != nil {
		t.Fatal(err)
	}
	about, err := meta.Open(t.Context(), rows, schema, f.now)
	if err == nil {
		err = about.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	f.start("would keep 3d, and the garbage collection of the tables says that all adapters of the store keep for ever", "--retention.resolution-raw=3d")
	f.start("")
}
