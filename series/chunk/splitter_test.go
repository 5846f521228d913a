package chunk_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

// TestSplitter: runs of floats and of other values are chunks of their own, and none has more floats than a chunk can count.
func TestSplitter(t *testing.T) {
	full := errors.New("full")
	var got []string
	var refuse error
	s := chunk.Splitter{Seal: func(encoding byte, mint, maxt int64, data []byte) error {
		if refuse != nil {
			return refuse
		}
		n := 0
		if encoding == chunk.EncodingDense {
			ts, _, err := dense.Decode(data, nil, nil)
			if err != nil || ts[0] != mint || ts[len(ts)-1] != maxt {
				t.Errorf("chunk from %d to %d: %v", mint, maxt, err)
			}
			n = len(ts)
		}
		got = append(got, fmt.Sprintf("%d: %d-%d, %d", encoding, mint, maxt, n))
		return nil
	}}
	floats := func(from, n int) error {
		ts := make([]int64, n)
		for i := range ts {
			ts[i] = int64(from + i)
		}
		return s.AddFloats(ts, make([]float64, n))
	}
	withStart := func(at int64) error { return s.Add(at, cell.Value{Start: 1, Float: 1}) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Flush())
	if _, ok := s.First(); ok {
		t.Error("it has samples")
	}
	must(floats(10, 3))
	must(floats(13, chunk.MaxSamples))
	must(withStart(90_000))
	must(withStart(90_001))
	if first, ok := s.First(); first != 90_000 || !ok {
		t.Errorf("the first sample is at %d, %t", first, ok)
	}
	must(floats(90_002, 1))
	refuse = full
	for range 2 {
		if err := withStart(90_003); !errors.Is(err, full) {
			t.Errorf("after a refused chunk: %v", err)
		}
	}
	refuse = nil
	must(withStart(90_003))
	must(s.Flush())
	must(floats(90_004, 1))
	s.Reset()
	must(s.Flush())
	want := []string{"128: 10-65544, 65535", "128: 65545-65547, 3", "4: 90000-90001, 0", "128: 90002-90002, 1", "4: 90003-90003, 0"}
	if !slices.Equal(got, want) {
		t.Errorf("chunks are %q, want %q", got, want)
	}
}
