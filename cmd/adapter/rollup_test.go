package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

// choosy is a store that does not take rows with a text in their key.
type choosy struct {
	storetest.Memory
	table  bucketstore.Table
	refuse string
}

func (s *choosy) Apply(ctx context.Context, table bucketstore.Table, muts []bucketstore.Mutation) error {
	failed := &bucketstore.RowsError{Failed: make(map[int]error)}
	for i, m := range muts {
		if table == s.table && strings.Contains(string(m.Key), s.refuse) {
			failed.Failed[i] = errors.New("not this one")
		} else if err := s.Memory.Apply(ctx, table, muts[i:i+1]); err != nil {
			return err
		}
	}
	if len(failed.Failed) > 0 {
		return failed
	}
	return nil
}

// TestFlushAll: days are not released while samples of rows that the store does not take are in the buffer. Rows of CURRENT may
// be.
func TestFlushAll(t *testing.T) {
	for table, want := range map[bucketstore.Table]string{bucketstore.Metric: "does not take 1 rows", bucketstore.Current: ""} {
		dir, err := buffer.OpenDir(filepath.Join(t.TempDir(), "log"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		store := &choosy{table: table, refuse: "refused"}
		b, err := buffer.Open(t.Context(), dir, buffer.Config{Store: store, FsyncInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var samples []bucketstore.Sample
		for _, name := range []string{"taken", "refused"} {
			key, err := series.Schema{}.AppendSeriesKey(nil, labels.FromStrings("__name__", name))
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, bucketstore.Sample{Ref: b.Ref(key), T: time.Now().UnixMilli(), V: 1})
		}
		if err := b.Append(t.Context(), samples); err != nil {
			t.Fatal(err)
		}
		err = flushAll(t.Context(), b)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", table, err, want)
		}
		if len(b.FailingRows()) != 1 {
			t.Errorf("%s: failing rows %v", table, b.FailingRows())
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
