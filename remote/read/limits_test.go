package read_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/read"
	"github.com/promtable/promtable/remote/remotetest"
)

// TestReadOneBlock: an answer that no block can hold is refused, whatever the
// limit on samples is.
func TestReadOneBlock(t *testing.T) {
	const block = 3_681_400_511 // what snappy can take
	for _, test := range []struct {
		name          string
		maxSamples, n int
		ok            bool
	}{
		{"in the limit", 1, 1<<20 + 24, true},
		{"over the limit", 1, 1<<20 + 25, false},
		{"huge limit", math.MaxInt, 4 << 20, true},
		{"block", math.MaxInt, block, true},
		{"over the block", math.MaxInt, block + 1, false},
		{"4 GiB", 1 << 40, 4 << 30, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := read.CheckAnswerBytes(test.maxSamples, test.n)
			if (err == nil) != test.ok || err != nil && !errors.Is(err, reader.ErrLimit) {
				t.Errorf("%v", err)
			}
			if _, fits := blockSize(test.n); test.ok && !fits {
				t.Error("snappy panics")
			}
		})
	}
}

func blockSize(n int) (size int, ok bool) {
	size = snappy.MaxEncodedLen(n)
	return size, size >= 0
}

// TestReadMaxSamplesUnbounded: without a bound on samples there is none on
// bytes, either.
func TestReadMaxSamplesUnbounded(t *testing.T) {
	all := remotetest.BigSeries(4, 50_000)
	eng := &remotetest.Engine{OnSelect: func(context.Context, reader.Query) (storage.ChunkSeriesSet, error) {
		return &remotetest.SeriesSet{Series: all}, nil
	}}
	base, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.MaxSamples = math.MaxInt })
	got, err := remotetest.Read(t, base, prompb.ReadRequest_SAMPLES, remotetest.Query(0, 1))
	if err != nil || len(got) != len(all) {
		t.Errorf("%d series, error %v", len(got), err)
	}
}
