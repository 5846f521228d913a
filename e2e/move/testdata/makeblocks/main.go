// Makeblocks writes the golden blocks of ../blocks-3.15 and ../blocks-3.16: in a directory with a go.mod that requires
// github.com/prometheus/prometheus v0.315.1 or v0.316.0,
//
//	go run . DIRECTORY
package main

import (
	"context"
	"log/slog"
	"math"
	"os"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

func main() {
	dir := os.Args[1]
	opts := tsdb.DefaultOptions()
	opts.EnableSTStorage = true
	opts.FloatChunkEncoding = chunkenc.EncXOR2
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, opts, nil)
	must(err)
	const begin = int64(1_767_225_600_000)
	app := db.AppenderV2(context.Background())
	add := func(ls labels.Labels, st, t int64, v float64, h *histogram.Histogram) {
		_, err := app.Append(0, ls, st, t, v, h, nil, storage.AOptions{})
		must(err)
	}
	for i := int64(0); i < 300; i++ {
		t := begin + i*15_000
		st := begin - 1000
		if i >= 100 {
			st = begin + 100*15_000 - 7 // it was started anew
		}
		v := float64(i*i%977) / 8
		add(labels.FromStrings("__name__", "requests_total", "case", "restart"), st, t, v, nil)
		add(labels.FromStrings("__name__", "requests_total", "case", "without"), 0, t, v, nil)
		w := v
		switch i % 50 {
		case 10:
			w = math.Float64frombits(0x7ff0000000000002)
		case 20:
			w = math.Copysign(0, -1)
		case 30:
			w = math.Inf(1)
		case 40:
			w = math.Float64frombits(0x7ff8000000000001)
		}
		add(labels.FromStrings("__name__", "level", "case", "special"), 0, t+i%3, w, nil)
		h := &histogram.Histogram{Schema: 1, ZeroThreshold: 0.001, ZeroCount: uint64(i), Sum: float64(i) / 3,
			PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []int64{i + 1, i}}
		h.Count = h.ZeroCount + uint64(i+1) + uint64(2*i+1)
		add(labels.FromStrings("__name__", "took_seconds", "case", "native"), st, t, 0, h)
	}
	must(app.Commit())
	head := db.Head()
	must(db.CompactHead(tsdb.NewRangeHead(head, head.MinTime(), head.MaxTime())))
	must(db.Close())
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
