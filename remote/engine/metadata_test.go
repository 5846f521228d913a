package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	prometheus "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

func newMetadata(family, kind, unit, help string) ingest.Metadata {
	return ingest.Metadata{Family: family, Metadata: metadata.Metadata{Type: prometheus.MetricType(kind), Unit: unit, Help: help}}
}

func (f *fixture) wantMetadata(t *testing.T, family string, limit int, want ...ingest.Metadata) {
	t.Helper()
	found, err := f.Metadata(t.Context(), family, limit)
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("metadata of %q: %v, %v, want %v", family, found, err, want)
	}
}

func TestMetadata(t *testing.T) {
	a, b := newMetadata("a", "counter", "bytes", "What a \"is\".\n"), newMetadata("b,c=\x00", "histogram", "", "")
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			clock := newClock(someTime)
			f := openOn(t, backend.open(t, clock), clock)
			var rejected ingest.Rejected
			appendAll := func(batch ...ingest.Metadata) {
				t.Helper()
				if err := f.AppendMetadata(t.Context(), batch, &rejected); err != nil {
					t.Fatal(err)
				}
			}
			f.wantMetadata(t, "", 0)
			appendAll(newMetadata("a", "gauge", "", "old"), b, a, newMetadata("", "gauge", "", "nobody"), newMetadata(strings.Repeat("x", series.MaxSeriesKey), "gauge", "", ""), newMetadata("bad\xff", "gauge", "", ""))
			if n := rejected.Samples[ingest.ReasonMetadata]; n != 3 {
				t.Errorf("%d entries rejected, want 3", n)
			}
			for _, text := range []string{"3 errors", `"nobody" names no metric family`, "xxxxx", `"bad\xff"`} {
				if err := rejected.Err(); err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("rejected because of %v, want %s in it", err, text)
				}
			}
			f.wantMetadata(t, "", 0, a, b)
			f.wantMetadata(t, "", 1, a)
			f.wantMetadata(t, b.Family, 0, b)
			f.wantMetadata(t, "nothing", 0)
			f.wantMetadata(t, strings.Repeat("x", series.MaxSeriesKey), 0)

			// What is cached costs nothing; what left the cache at a restart is
			// written once more.
			f.store.reset()
			appendAll(a, b)
			if n := f.store.rows(bucketstore.Meta); n != 0 {
				t.Errorf("%d rows for nothing new", n)
			}
			clock.ms.Add(1)
			a2 := newMetadata("a", "counter", "bytes", "Something else.")
			appendAll(a2, b)
			if n := f.store.rows(bucketstore.Meta); n != 1 {
				t.Errorf("%d rows for one change", n)
			}
			f.reopen(t)
			f.wantMetadata(t, "", 0, a2, b)
			f.store.reset()
			appendAll(a2, b)
			appendAll(a2, b)
			if n := f.store.rows(bucketstore.Meta); n != 2 {
				t.Errorf("%d rows after a restart, want 2", n)
			}
		})
	}
}

// Metadata that was not stored is not cached.
func TestMetadataStoreFailure(t *testing.T) {
	f := openFixture(t)
	f.store.onApply = func(bucketstore.Table, []bucketstore.Mutation) error { return errStore }
	batch := []ingest.Metadata{newMetadata("a", "gauge", "", "")}
	if err := f.AppendMetadata(t.Context(), batch, nil); !errors.Is(err, errStore) {
		t.Fatalf("error %v", err)
	}
	f.store.onApply = nil
	if err := f.AppendMetadata(t.Context(), batch, nil); err != nil {
		t.Fatal(err)
	}
	f.wantMetadata(t, "", 0, batch...)
}

func TestMetadataIsBounded(t *testing.T) {
	f := openFixture(t)
	help := strings.Repeat("ä", 4000)
	if err := f.AppendMetadata(t.Context(), []ingest.Metadata{newMetadata("a", "gauge", "\xff", help)}, nil); err != nil {
		t.Fatal(err)
	}
	f.wantMetadata(t, "a", 0, newMetadata("a", "gauge", "", help[:4096]))
}
