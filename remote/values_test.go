package remote_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series/seriestest"
)

// values makes a series of all kinds of values that alternate: floats, integer
// and float histograms, exponential and custom buckets, counters and gauges,
// changes of layout, resets, staleness markers, start timestamps.
func values(rng *rand.Rand, start int64, n int) (all []writev2.TimeSeries) {
	var counts [6]uint64
	kind := 0
	for i := range n {
		if rng.IntN(20) == 0 {
			kind = rng.IntN(7)
		}
		t, st := start+int64(i)*1000, int64(0)
		if rng.IntN(40) < kind*5 {
			st = t - 1 - rng.Int64N(1000)
		}
		if kind == 0 {
			v := []float64{rng.Float64(), math.Copysign(0, -1), math.Float64frombits(value.StaleNaN), math.NaN(), math.Inf(1)}[rng.IntN(5)]
			all = append(all, writev2.TimeSeries{Samples: []writev2.Sample{{Timestamp: t, Value: v, StartTimestamp: st}}})
			continue
		}
		if rng.IntN(30) == 0 {
			counts = [6]uint64{}
		}
		for b := range counts {
			counts[b] += rng.Uint64N(10)
		}
		h := newValue(rng, kind, counts)
		encoded := writev2.FromIntHistogram(st, t, h)
		if kind > 4 {
			encoded = writev2.FromFloatHistogram(st, t, h.ToFloat(nil))
		}
		all = append(all, writev2.TimeSeries{Histograms: []writev2.Histogram{encoded}})
	}
	return all
}

// newValue makes a histogram with up to six buckets.
func newValue(rng *rand.Rand, kind int, counts [6]uint64) *histogram.Histogram {
	h := &histogram.Histogram{Sum: rng.NormFloat64(), Schema: int32(kind % 3)}
	if rng.IntN(15) == 0 {
		return &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}
	}
	n := 1 + rng.IntN(len(counts))
	last := int64(0)
	for _, c := range counts[:n] {
		h.PositiveBuckets = append(h.PositiveBuckets, int64(c)-last)
		last = int64(c)
		h.Count += c
	}
	h.PositiveSpans = []histogram.Span{{Offset: int32(rng.IntN(2)), Length: uint32(n)}}
	switch kind {
	case 2:
		h.CounterResetHint = histogram.GaugeType
		h.NegativeSpans, h.NegativeBuckets, h.Count = []histogram.Span{{Offset: -3, Length: 1}}, []int64{4}, h.Count+4
		h.ZeroThreshold, h.ZeroCount, h.Count = 1e-9, 2, h.Count+2
	case 3, 6:
		h.Schema, h.CustomValues = histogram.CustomBucketsSchema, []float64{-1, 0, 1, 2, 5, 10, 20}
	case 4:
		h.CounterResetHint = histogram.CounterReset
	}
	return h
}

// TestAllValuesComeBack writes a series of all kinds of values by both
// protocols and reads it by both answers.
func TestAllValuesComeBack(t *testing.T) {
	seed := seriestest.Seed(t)
	for _, backend := range remotetest.Backends {
		for _, contentType := range []string{remotetest.TypeV1, remotetest.TypeV2} {
			t.Run(backend.Name+"/"+contentType, func(t *testing.T) {
				base, _ := remotetest.ServeStore(t, backend.Open(t))
				start := time.Now().Add(-10 * time.Hour).UnixMilli() // partly late, partly in the windows of now
				all := values(rand.New(rand.NewPCG(seed, 0)), start, 3000)
				var want, wantNoStart, wantResets []string
				req := writev2.Request{Symbols: []string{"", "__name__", "mixed"}}
				var old prompb.WriteRequest
				for _, ts := range all {
					ts.LabelsRefs = []uint32{1, 2}
					req.Timeseries = append(req.Timeseries, ts)
					one := prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "mixed"}}}
					for _, s := range ts.Samples {
						one.Samples = append(one.Samples, prompb.Sample{Timestamp: s.Timestamp, Value: s.Value})
						want = append(want, remotetest.ValueText(s.Timestamp, s.StartTimestamp, s.Value, nil, nil))
						wantNoStart = append(wantNoStart, remotetest.ValueText(s.Timestamp, 0, s.Value, nil, nil))
					}
					for _, h := range ts.Histograms {
						ih, fh := h.ToIntHistogram(), h.ToFloatHistogram()
						m := prompb.FromFloatHistogram(h.Timestamp, fh)
						if ih != nil {
							m, fh = prompb.FromIntHistogram(h.Timestamp, ih), nil
						}
						one.Histograms = append(one.Histograms, m)
						want = append(want, remotetest.ValueText(h.Timestamp, h.StartTimestamp, 0, ih, fh))
						wantNoStart = append(wantNoStart, remotetest.ValueText(h.Timestamp, 0, 0, ih, fh))
						if ih != nil && ih.CounterResetHint == histogram.CounterReset {
							wantResets = append(wantResets, fmt.Sprint(h.Timestamp))
						}
					}
					old.Timeseries = append(old.Timeseries, one)
				}
				body := snappy.Encode(nil, awkwardZeros(t, contentType, &old, &req))
				got := remotetest.Send(t, http.MethodPost, base+"/write", http.Header{"Content-Type": {contentType}, "Content-Encoding": {"snappy"}}, body)
				got.WantStatus(t, 204)
				if contentType == remotetest.TypeV1 {
					want = wantNoStart
				}
				for agent, want := range map[string][]string{"Prometheus/3.15.0": want, "Prometheus/3.13.9": wantNoStart, "Prometheus/": wantNoStart, "thanos/0.99": wantNoStart} {
					wantTexts(t, agent, streamedTexts(t, base, agent), want)
				}
				texts, resets := samplesTexts(t, base)
				wantTexts(t, "samples", texts, wantNoStart)
				for _, at := range wantResets {
					if !slices.Contains(resets, at) {
						t.Errorf("the reset at %s is lost", at)
					}
				}
			})
		}
	}
}

// awkwardZeros encodes the request of a protocol. The generated encoders leave
// out -0, so that it is put back.
func awkwardZeros(t *testing.T, contentType string, old *prompb.WriteRequest, req *writev2.Request) []byte {
	t.Helper()
	if contentType == remotetest.TypeV2 {
		body := wiretest.Marshal(t, &writev2.Request{Symbols: req.Symbols})
		for _, ts := range req.Timeseries {
			msg := wiretest.Marshal(t, &writev2.TimeSeries{LabelsRefs: ts.LabelsRefs, Histograms: ts.Histograms})
			for _, s := range ts.Samples {
				msg = append(msg, wiretest.AppendMessage(nil, 2, wiretest.RawSample(s.Value, s.Timestamp, s.StartTimestamp))...)
			}
			body = append(body, wiretest.AppendMessage(nil, 5, msg)...)
		}
		return body
	}
	var body []byte
	for _, ts := range old.Timeseries {
		msg := wiretest.Marshal(t, &prompb.TimeSeries{Labels: ts.Labels, Histograms: ts.Histograms})
		for _, s := range ts.Samples {
			msg = append(msg, wiretest.AppendMessage(nil, 2, wiretest.RawSample(s.Value, s.Timestamp, 0))...)
		}
		body = append(body, wiretest.AppendMessage(nil, 1, msg)...)
	}
	return body
}

func wantTexts(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("%s: value %d of %d is\n%v\nwant\n%s", what, i, len(got), got[min(i, len(got)-1)], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
}

// streamedTexts reads everything as a client with this user agent.
func streamedTexts(t *testing.T, base, agent string) (texts []string) {
	t.Helper()
	return remotetest.StreamedTexts(t, base, agent, remotetest.Query(0, math.MaxInt64))
}

// samplesTexts reads everything in one block, and returns also the times of
// histograms that say that the counter was reset.
func samplesTexts(t *testing.T, base string) (texts, resets []string) {
	t.Helper()
	got := remotetest.PostRead(t, base, &prompb.ReadRequest{Queries: []*prompb.Query{remotetest.Query(0, math.MaxInt64)}})
	got.WantStatus(t, 200)
	block, err := snappy.Decode(nil, []byte(got.Body))
	if err != nil {
		t.Fatal(err)
	}
	var resp prompb.ReadResponse
	if err := proto.Unmarshal(block, &resp); err != nil {
		t.Fatal(err)
	}
	type timed struct {
		t    int64
		text string
	}
	var all []timed
	for _, s := range resp.Results[0].Timeseries[0].Samples {
		all = append(all, timed{s.Timestamp, remotetest.ValueText(s.Timestamp, 0, s.Value, nil, nil)})
	}
	for _, h := range resp.Results[0].Timeseries[0].Histograms {
		ih, fh := h.ToIntHistogram(), h.ToFloatHistogram()
		if ih != nil {
			fh = nil
		}
		all = append(all, timed{h.Timestamp, remotetest.ValueText(h.Timestamp, 0, 0, ih, fh)})
		if h.ResetHint == prompb.Histogram_YES {
			resets = append(resets, fmt.Sprint(h.Timestamp))
		}
	}
	slices.SortFunc(all, func(a, b timed) int { return int(a.t - b.t) })
	for _, v := range all {
		texts = append(texts, v.text)
	}
	return texts, resets
}

// TestSeriesOnlyOfHistograms: a query for series alone needs no samples,
// whatever they are.
func TestSeriesOnlyOfHistograms(t *testing.T) {
	base, _ := remotetest.ServeStore(t, remotetest.OpenPebble(t))
	h := prompb.FromIntHistogram(time.Now().UnixMilli(), &histogram.Histogram{Sum: 1})
	remotetest.Post(t, base+"/write", remotetest.TypeV1, wiretest.V1(t, prompb.TimeSeries{Labels: []prompb.Label{{Name: "__name__", Value: "h"}}, Histograms: []prompb.Histogram{h}})).WantStatus(t, 204)
	q := remotetest.Query(0, math.MaxInt64, remotetest.Eq("__name__", "h"))
	q.Hints = &prompb.ReadHints{Func: "series"}
	got := remotetest.PostRead(t, base, &prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}, Queries: []*prompb.Query{q}})
	all := remotetest.Frames(t, got.Body)
	if len(all) != 1 || len(all[0].ChunkedSeries[0].Chunks) != 0 {
		t.Errorf("frames %v, want one without chunks", all)
	}
}
