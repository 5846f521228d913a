package pebble_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/bucketstore/storetest"
	"github.com/promtable/promtable/series"
)

func deleteFamily(family string) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: family}
}

func deleteColumn(family, qual string) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteColumn, Family: family, Qualifier: []byte(qual)}
}

func deleteBefore(family, qual string, t int64) bucketstore.Op {
	return bucketstore.Op{Kind: bucketstore.DeleteColumnBefore, Family: family, Qualifier: []byte(qual), Time: t}
}

// TestDeleteOverDays applies mutations to a new store, without other days.
func TestDeleteOverDays(t *testing.T) {
	const key = "up," + testBase
	q := func(days int) string { return string(daysIn(days, 7)) }
	set := func(family string, days int, value string) bucketstore.Op { return setOp(family, q(days), 5, value) }
	before := []bucketstore.Op{set("l", 0, "a"), set("l", 9, "b"), set("r0", 0, "c"), set("r0", 20, "d")}
	for _, tc := range []struct {
		name string
		ops  []bucketstore.Op
		want string
	}{
		{"delete family", []bucketstore.Op{deleteFamily("l")}, "cd"},
		{"delete families", []bucketstore.Op{deleteFamily("r0"), deleteFamily("l")}, ""},
		{"delete an empty family", []bucketstore.Op{deleteFamily("r1")}, "abcd"},
		{"set in new days and delete", []bucketstore.Op{set("l", 30, "e"), set("l", 48, "f"), deleteFamily("l")}, "cd"},
		{"delete and set", []bucketstore.Op{deleteFamily("l"), set("l", 9, "e"), set("l", 30, "f")}, "efcd"},
		{"delete column", []bucketstore.Op{deleteColumn("l", q(9)), deleteColumn("r0", q(9))}, "acd"},
		{"delete before", []bucketstore.Op{deleteBefore("l", q(9), 6), deleteBefore("r0", q(20), 5), set("l", 30, "e"), deleteBefore("l", q(30), 6)}, "acd"},
	} {
		for _, how := range []string{"apply", "check and apply"} {
			t.Run(tc.name+", "+how, func(t *testing.T) {
				s := openStore(t, onDisk(t.TempDir()))
				apply(t, s, bucketstore.Metric, key, before...)
				apply(t, s, bucketstore.Metric, "up,"+nextBase, setOp("l", "", 1, "y"))
				apply(t, s, bucketstore.Metric, "up,"+testBase+",host", set("l", 9, "z"))
				if how == "apply" {
					apply(t, s, bucketstore.Metric, key, tc.ops...)
				} else {
					cond := bucketstore.Condition{Family: "r0", Qualifier: []byte(q(20)), Value: []byte("d")}
					applied, err := s.CheckAndApply(t.Context(), bucketstore.Metric, cond, bucketstore.Mutation{Key: []byte(key), Ops: tc.ops})
					if err != nil || !applied {
						t.Fatalf("CheckAndApply says %t, %v", applied, err)
					}
				}
				if got := values(t, s); got != tc.want+"zy" {
					t.Errorf("the store holds %q, want %q", got, tc.want+"zy")
				}
			})
		}
	}
}

// values returns the values of all cells of METRIC.
func values(t *testing.T, s *pebble.Store) string {
	t.Helper()
	var b strings.Builder
	err := s.Scan(t.Context(), allOf(bucketstore.Metric), func(row bucketstore.Row) error {
		for _, c := range row.Cells {
			b.Write(c.Value)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDropOverDays(t *testing.T) {
	for _, tc := range []struct {
		name string
		rows series.RowRange
		want string
	}{
		{"everything", series.RowRange{}, ""},
		{"a row", series.SingleRow([]byte("a," + testBase)), "cde"},
		{"a row and what follows it", series.RowRange{Start: []byte("a," + nextBase)}, "ab"},
		{"the bases of a series", series.RowRange{Start: []byte("a," + testBase), Limit: []byte("a," + nextBase + "\x00")}, "de"},
		{"a name", series.PrefixRange([]byte("b")), "abc"},
		{"nothing", series.SingleRow([]byte("ab," + testBase)), "abcde"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openStore(t, onDisk(t.TempDir()))
			apply(t, s, bucketstore.Metric, "a,"+testBase, setOp("l", string(daysIn(0, 0)), 1, "a"), setOp("l", string(daysIn(40, 0)), 1, "b"))
			apply(t, s, bucketstore.Metric, "a,"+nextBase, setOp("l", string(daysIn(9, 0)), 1, "c"))
			apply(t, s, bucketstore.Metric, "b,"+testBase, setOp("l", string(daysIn(0, 0)), 1, "d"), setOp("r0", string(daysIn(7, 0)), 1, "e"))
			if err := s.Drop(t.Context(), bucketstore.Metric, tc.rows); err != nil {
				t.Fatal(err)
			}
			if got := values(t, s); got != tc.want {
				t.Errorf("the store holds %q, want %q", got, tc.want)
			}
		})
	}
}

// TestAtomicRowOverDays replaces all cells of a row by cells in other days while the row is
// read. No reader may see parts of two versions.
func TestAtomicRowOverDays(t *testing.T) {
	const writers, versions, width = 2, 150, 12
	s := openStore(t, onDisk(t.TempDir()))
	key := "up," + testBase
	write := func(version int) {
		mut := bucketstore.Mutation{Key: []byte(key)}
		for _, family := range []string{"l", "r0"} {
			mut.Ops = append(mut.Ops, bucketstore.Op{Kind: bucketstore.DeleteFamily, Family: family})
			for i := range width {
				qual := daysIn((version*5+i*3)%49, uint32(version))
				mut.Ops = append(mut.Ops, setOp(family, string(qual), 1, fmt.Sprint(version)))
			}
		}
		if err := s.Apply(context.Background(), bucketstore.Metric, []bucketstore.Mutation{mut}); err != nil {
			t.Error(err)
		}
	}
	write(0)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for v := range versions {
				write(v*writers + w)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		writing.Wait()
		close(done)
	}()
	for _, rows := range []series.RowRange{series.SingleRow([]byte(key)), {}} {
		req := allOf(bucketstore.Metric)
		req.Rows = []series.RowRange{rows}
		readUntil(t, s, req, done, 2*width)
	}
}

// readUntil scans until done and checks that the row has so many cells of one
// value.
func readUntil(t *testing.T, s *pebble.Store, req bucketstore.ScanRequest, done <-chan struct{}, cells int) {
	t.Helper()
	for reads := 0; ; reads++ {
		err := s.Scan(t.Context(), req, func(row bucketstore.Row) error {
			if len(row.Cells) != cells {
				return fmt.Errorf("a row with %d cells, want %d", len(row.Cells), cells)
			}
			for _, c := range row.Cells {
				if string(c.Value) != string(row.Cells[0].Value) {
					return fmt.Errorf("a row of the versions %s and %s", row.Cells[0].Value, c.Value)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			return
		default:
		}
		if reads == 200 && req.Rows[0].Limit != nil {
			return // The writers write on for the next kind of range.
		}
	}
}

// TestReplaceInNewDays lets writers replace a row at the same time, each by cells in new
// days.
func TestReplaceInNewDays(t *testing.T) {
	const writers, width = 3, 8
	s := openStore(t, onDisk(t.TempDir()))
	for round := range int64(storetest.Rounds(t, 200)) {
		key := fmt.Appendf(nil, "up,%013d", round*series.Period)
		var writing sync.WaitGroup
		for w := range writers {
			writing.Go(func() {
				mut := bucketstore.Mutation{Key: key, Ops: []bucketstore.Op{deleteFamily("l")}}
				for i := range width {
					mut.Ops = append(mut.Ops, setOp("l", string(daysIn(writers*i+w, 0)), 1, fmt.Sprint(w)))
				}
				if err := s.Apply(context.Background(), bucketstore.Metric, []bucketstore.Mutation{mut}); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
		got := values(t, s)
		if len(got) != width || strings.Trim(got, got[:1]) != "" {
			t.Fatalf("round %d: the row holds cells of the writers %s, want %d of one", round, got, width)
		}
		if err := s.Drop(t.Context(), bucketstore.Metric, series.SingleRow(key)); err != nil {
			t.Fatal(err)
		}
	}
}
