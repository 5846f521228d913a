package meta_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/series"
)

// TestRetention: how long all adapters keep samples is a part of META/schema. It is changed from what was read only, and changes nothing else.
func TestRetention(t *testing.T) {
	rows := backends["bigtable"](t)
	early, err := meta.Open(t.Context(), rows, newSchema(t), now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := early.Retention(t.Context()); !errors.Is(err, meta.ErrNoSchema) {
		t.Errorf("before Init: %v", err)
	}
	if set, err := early.SetRetention(t.Context(), nil, bucketstore.Retention{}); set || !errors.Is(err, meta.ErrNoSchema) {
		t.Errorf("set before Init: %v, %v", set, err)
	}
	s := open(t, rows, newSchema(t))
	other := open(t, rows, newSchema(t))
	identity, digest := s.Identity(), s.SchemaDigest()
	const day = 24 * time.Hour
	var last *bucketstore.Retention
	for _, keep := range []bucketstore.Retention{{}, {3 * day, 90 * day, 0}, {3 * day, -1, -1}, {time.Millisecond, 90 * day, -1}} {
		if set, err := s.SetRetention(t.Context(), &bucketstore.Retention{day, day, day}, keep); set || err != nil {
			t.Errorf("in place of something else: %v, %v", set, err)
		}
		if set, err := s.SetRetention(t.Context(), last, keep); !set || err != nil {
			t.Errorf("%v: %v, %v", keep, set, err)
		}
		if set, err := other.SetRetention(t.Context(), nil, bucketstore.Retention{}); set || err != nil {
			t.Errorf("as if META said nothing: %v, %v", set, err)
		}
		if got, ok, err := other.Retention(t.Context()); !ok || err != nil || got != keep {
			t.Errorf("%v, %v, %v, want %v", got, ok, err, keep)
		}
		last = &keep
	}
	rest := open(t, rows, newSchema(t))
	if rest.Identity() != identity || rest.SchemaDigest() != digest {
		t.Error("the identity or the digest of the schema has changed")
	}
	if cell, err := meta.ReadCell(t.Context(), rows, series.MetaSchema); err != nil || !strings.HasSuffix(string(cell.Value), `"retention":{"1h":-1,"5m":7776000000,"raw":1}}`) {
		t.Errorf("META/schema is %s, %v", cell.Value, err)
	}
}
