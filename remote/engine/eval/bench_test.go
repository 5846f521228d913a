package eval_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/series/chunk"
)

// memory is a store whose series are decoded.
type memory []*floatSeries

func (m memory) Querier(int64, int64) (storage.Querier, error) { return memoryQuerier{nil, m}, nil }

type memoryQuerier struct {
	storage.LabelQuerier
	series memory
}

func (memoryQuerier) Close() error { return nil }

func (q memoryQuerier) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &memorySet{rest: q.series}
}

type memorySet struct {
	rest memory
	at   *floatSeries
}

func (s *memorySet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *memorySet) At() storage.Series              { return s.at }
func (*memorySet) Err() error                        { return nil }
func (*memorySet) Warnings() annotations.Annotations { return nil }

// floatSeries is a series of floats.
type floatSeries struct {
	labels labels.Labels
	ts     []int64
	vs     []float64
}

func (s *floatSeries) Labels() labels.Labels { return s.labels }

func (s *floatSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	var b chunk.Builder
	b.Decoded = new(chunk.Space)
	b.AppendFloats(nil, s.ts, s.vs)
	return b.Chunks[0].Chunk.Iterator(it)
}

// AppendFloats implements eval.FloatSeries.
func (s *floatSeries) AppendFloats(ts []int64, vs []float64) ([]int64, []float64, bool, error) {
	return append(ts, s.ts...), append(vs, s.vs...), true, nil
}

// BenchmarkQuery evaluates queries over a thousand series of twelve hours that are decoded
// already, with upstream's engine and with ours.
func BenchmarkQuery(b *testing.B) {
	var data memory
	for i := range 1000 {
		s := &floatSeries{labels: labels.FromStrings("__name__", "http_requests_total", "job", strconv.Itoa(i%10), "instance", strconv.Itoa(i), "code", strconv.Itoa(i%7))}
		for n := range 2880 {
			s.ts, s.vs = append(s.ts, int64(n)*15_000), append(s.vs, float64(n*(i%50)))
		}
		data = append(data, s)
	}
	engines := map[string]promql.QueryEngine{"upstream": promql.NewEngine(options()), "ours": eval.New(options(), eval.NewMemory(0, 0))}
	for name, query := range map[string]string{
		"rate": "sum by (job) (rate(http_requests_total[5m]))", "avg": "avg by (code) (http_requests_total)",
		"max_over_time": "max by (code) (max_over_time(http_requests_total[10m]))",
		"topk":          "topk(5, rate(http_requests_total[5m]))",
	} {
		for engine, e := range engines {
			b.Run(name+"/"+engine, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					q, err := e.NewRangeQuery(b.Context(), data, nil, query, time.UnixMilli(300_000), time.UnixMilli(2880*15_000), time.Minute)
					if err != nil {
						b.Fatal(err)
					}
					if res := q.Exec(b.Context()); res.Err != nil {
						b.Fatal(res.Err)
					}
					q.Close()
				}
			})
		}
	}
}
