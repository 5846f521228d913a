package write_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/remotetest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// writeCase is a request and what must become of it.
type writeCase struct {
	name   string
	body   []byte
	status int
	// stored are the series that reach the engine.
	stored []ingest.Series
	// text must occur in the answer.
	text string
	// rejected holds what is counted, by reason.
	rejected map[ingest.Reason]float64
	// metadata are the entries that reach the engine.
	metadata []ingest.Metadata
}

func (c writeCase) run(t *testing.T, contentType string) {
	eng := &remotetest.Engine{}
	url, reg := remotetest.Serve(t, eng, nil)
	got := remotetest.Post(t, url+"/api/v1/write", contentType, c.body)
	got.WantStatus(t, c.status)
	if !strings.Contains(got.Body, c.text) || len(got.Body) > 1024 {
		t.Errorf("text %q, want %q in it", got.Body, c.text)
	}
	var stored ingest.Stored
	for i, s := range c.stored {
		stored.Samples += len(s.Samples)
		stored.Histograms += len(s.Histograms)
		stored.Exemplars += len(s.Exemplars)
		if i >= len(eng.Series) || wiretest.Describe(eng.Series[i]) != wiretest.Describe(s) {
			t.Fatalf("stored %v, want %v", eng.Series, c.stored)
		}
	}
	if len(eng.Series) != len(c.stored) {
		t.Errorf("stored %v, want %v", eng.Series, c.stored)
	}
	if !slices.Equal(eng.Families, c.metadata) {
		t.Errorf("metadata %v, want %v", eng.Families, c.metadata)
	}
	remotetest.WantWrittenAll(t, got, contentType == remotetest.TypeV2, stored)
	for _, reason := range []ingest.Reason{ingest.ReasonLabels, ingest.ReasonKeyTooLong, ingest.ReasonHistogram, ingest.ReasonExemplar, ingest.ReasonMalformed} {
		remotetest.WantCounter(t, reg, c.rejected[reason], "adapter_write_rejected_total", "reason", string(reason))
	}
	proto := "1.0"
	if contentType == remotetest.TypeV2 {
		proto = "2.0"
	}
	remotetest.WantCounter(t, reg, float64(stored.Samples), "adapter_write_samples_total", "protocol", proto)
	remotetest.WantCounter(t, reg, float64(stored.Histograms), "adapter_write_histograms_total", "protocol", proto)
	remotetest.WantCounter(t, reg, float64(stored.Exemplars), "adapter_write_exemplars_total", "protocol", proto)
	remotetest.WantCounter(t, reg, float64(len(c.metadata)), "adapter_write_metadata_total")
}

// one is a series "up" with a single sample, 7 at 5.
func one(pairs ...string) ingest.Series {
	return ingest.Series{Labels: wiretest.LabelSet(append([]string{"__name__", "up"}, pairs...)...), Samples: []ingest.Sample{{T: 5, V: 7}}}
}

// since gives all samples of s a start timestamp.
func since(st int64, s ingest.Series) ingest.Series {
	for i := range s.Samples {
		s.Samples[i].ST = st
	}
	return s
}

func TestWriteV1(t *testing.T) {
	sample := []prompb.Sample{{Timestamp: 5, Value: 7}}
	up := wiretest.V1Series(sample, "__name__", "up")
	with := func(ts prompb.TimeSeries, change func(*prompb.TimeSeries)) prompb.TimeSeries {
		change(&ts)
		return ts
	}
	var awkward []ingest.Sample
	for i, v := range remotetest.AwkwardFloats() {
		awkward = append(awkward, ingest.Sample{T: int64(i) - 3, V: v})
	}
	long := strings.Repeat("x", 3073)
	huge := strings.Repeat("x", 17<<20)
	tests := []writeCase{
		{name: "plain", body: wiretest.V1(t, up), status: 204, stored: []ingest.Series{one()}},
		{
			name: "unsorted labels", status: 204,
			body:   wiretest.V1(t, wiretest.V1Series(sample, "job", "a", "__name__", "up", "Zone", "b")),
			stored: []ingest.Series{one("job", "a", "Zone", "b")},
		},
		{
			name: "empty value is absent", status: 204,
			body:   wiretest.V1(t, wiretest.V1Series(sample, "__name__", "up", "job", "")),
			stored: []ingest.Series{one()},
		},
		{
			name: "the bytes of labels", status: 204,
			body:   wiretest.V1(t, wiretest.V1Series(sample, "__name__", "up", "a.b/c d", "\x00\n,=#\\\"é")),
			stored: []ingest.Series{one("a.b/c d", "\x00\n,=#\\\"é")},
		},
		{
			name: "all bits of values, any order and time", status: 204,
			body:   wiretest.AppendMessage(nil, 1, append(wiretest.Marshal(t, &prompb.TimeSeries{Labels: up.Labels}), wiretest.RawSamples(awkward)...)),
			stored: []ingest.Series{{Labels: one().Labels, Samples: awkward}},
		},
		{
			name: "the same series twice", status: 204,
			body: wiretest.V1(t, up, up), stored: []ingest.Series{one(), one()},
		},
		{
			name: "metadata alone", status: 204,
			metadata: []ingest.Metadata{wiretest.NewMetadata("up", "unknown", "", ""), wiretest.NewMetadata("down", "gaugehistogram", "s", "help")},
			body:     wiretest.Marshal(t, &prompb.WriteRequest{Metadata: []prompb.MetricMetadata{{MetricFamilyName: "up"}, {MetricFamilyName: "down", Help: "help", Unit: "s", Type: 4}}}),
		},
		{
			name: "a series with nothing", status: 204,
			body: wiretest.V1(t, wiretest.V1Series(nil, "__name__", "up"), up), stored: []ingest.Series{one()},
		},
		{
			name: "unknown fields", status: 204,
			body:   append([]byte{9 << 3, 1, 10<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 11<<3 | 5, 1, 2, 3, 4, 12<<3 | 2, 1, 'x'}, wiretest.V1(t, up)...),
			stored: []ingest.Series{one()},
		},
		{
			name: "no name", status: 400, text: "no metric name",
			body:   wiretest.V1(t, wiretest.V1Series(sample, "job", "x"), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonLabels: 1},
		},
		{
			name: "histograms", status: 204,
			body: wiretest.V1(t,
				with(wiretest.V1Series(nil, "__name__", "up"), func(ts *prompb.TimeSeries) {
					ts.Histograms = []prompb.Histogram{prompb.FromIntHistogram(1, remotetest.SomeHistogram()), prompb.FromFloatHistogram(2, remotetest.SomeFloatHistogram())}
				}),
				with(up, func(ts *prompb.TimeSeries) { ts.Histograms = []prompb.Histogram{{Timestamp: 1}} })),
			stored: []ingest.Series{
				{Labels: one().Labels, Histograms: []ingest.Histogram{{T: 1, H: remotetest.SomeHistogram()}, {T: 2, FH: remotetest.SomeFloatHistogram()}}},
				{Labels: one().Labels, Samples: one().Samples, Histograms: []ingest.Histogram{{T: 1, H: &histogram.Histogram{}}}},
			},
		},
		{
			name: "a malformed histogram", status: 400, text: "malformed",
			body: wiretest.V1(t, with(up, func(ts *prompb.TimeSeries) {
				ts.Histograms = []prompb.Histogram{{XXX_unrecognized: []byte{16<<3 | 2, 7, 1, 2, 3, 4, 5, 6, 7}}}
			})),
		},
		{
			name: "exemplars", status: 400, text: `series {__name__="up"}: exemplar at 2: its labels have 3077 bytes`,
			body: wiretest.V1(t, with(up, func(ts *prompb.TimeSeries) {
				ts.Exemplars = []prompb.Exemplar{
					{Value: math.Inf(1), Timestamp: 1, Labels: []prompb.Label{{Name: "b", Value: "2"}, {Name: "a", Value: "1"}}}, {},
					{Timestamp: 2, Labels: []prompb.Label{{Name: "long", Value: long}}},
				}
			})),
			stored: []ingest.Series{{Labels: one().Labels, Samples: one().Samples, Exemplars: []exemplar.Exemplar{
				{Labels: wiretest.LabelSet("a", "1", "b", "2"), Value: math.Inf(1), Ts: 1, HasTs: true}, {},
			}}},
			rejected: map[ingest.Reason]float64{ingest.ReasonExemplar: 1},
		},
		{
			name: "exemplars alone", status: 204,
			body:   wiretest.V1(t, with(wiretest.V1Series(nil, "__name__", "up"), func(ts *prompb.TimeSeries) { ts.Exemplars = []prompb.Exemplar{{Value: 3, Timestamp: 1}} })),
			stored: []ingest.Series{{Labels: one().Labels, Exemplars: []exemplar.Exemplar{{Value: 3, Ts: 1, HasTs: true}}}},
		},
		{
			name: "a long value", status: 400, text: `series "up" has the label "job" with a value of 3073 bytes, the limit is 3072`,
			body:   wiretest.V1(t, wiretest.V1Series(sample, "__name__", "up", "job", long), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonKeyTooLong: 1},
		},
		{
			name: "a long name", status: 400, text: "with a name of 3073 bytes",
			body:   wiretest.V1(t, wiretest.V1Series(sample, long, "x", "__name__", "up"), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonKeyTooLong: 1},
		},
		{
			name: "a value over 16 MB", status: 400, text: `series "up" has the label "job" with a value of 17825792 bytes`,
			body:   wiretest.V1(t, wiretest.V1Series(sample, "__name__", "up", "job", huge), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonKeyTooLong: 1},
		},
		{
			name: "a metric name over 16 MB", status: 400, text: "17825792 bytes",
			body:   wiretest.V1(t, wiretest.V1Series(sample, "__name__", huge), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonKeyTooLong: 1},
		},
		{
			name: "many labels", status: 400, text: "series \"up\" has labels of",
			body:   wiretest.V1(t, wiretest.V1Series(sample, append([]string{"__name__", "up"}, manyPairs(3000)...)...), up),
			stored: []ingest.Series{one()}, rejected: map[ingest.Reason]float64{ingest.ReasonKeyTooLong: 1},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, remotetest.TypeV1) })
	}
}

func manyPairs(n int) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("a_label_of_some_length_%06d", i), "x")
	}
	return pairs
}

func TestWriteV2(t *testing.T) {
	symbols := []string{"", "__name__", "up", "job", "a", strings.Repeat("x", 3073)}
	sample := []writev2.Sample{{Timestamp: 5, Value: 7}}
	up := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: sample}
	request := func(series ...writev2.TimeSeries) []byte {
		return wiretest.Marshal(t, &writev2.Request{Symbols: symbols, Timeseries: series})
	}
	reject := func(reason ingest.Reason, n float64) map[ingest.Reason]float64 {
		return map[ingest.Reason]float64{reason: n}
	}
	var awkward []ingest.Sample
	for i, v := range remotetest.AwkwardFloats() {
		awkward = append(awkward, ingest.Sample{T: int64(i) - 3, V: v})
	}
	symbolsOnly := wiretest.Marshal(t, &writev2.Request{Symbols: symbols})
	seriesOnly := wiretest.Marshal(t, &writev2.Request{Timeseries: []writev2.TimeSeries{up}})
	oldStyle := wiretest.Marshal(t, &up)
	oldStyle = append(oldStyle, 6<<3, 99) // created_timestamp
	tests := []writeCase{
		{name: "plain", body: request(up), status: 204, stored: []ingest.Series{one()}},
		{
			name: "unsorted labels", status: 204,
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{3, 4, 1, 2}, Samples: sample}),
			stored: []ingest.Series{one("job", "a")},
		},
		{
			name: "empty value is absent", status: 204,
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, 0}, Samples: sample}),
			stored: []ingest.Series{one()},
		},
		{
			name: "references not packed", status: 204,
			body:   append(bytes.Clone(symbolsOnly), wiretest.AppendMessage(nil, 5, append([]byte{1 << 3, 1, 1 << 3, 2}, wiretest.RawSamples([]ingest.Sample{{T: 5, V: 7}})...))...),
			stored: []ingest.Series{one()},
		},
		{
			name: "symbols after the series", status: 204,
			body: append(bytes.Clone(seriesOnly), symbolsOnly...), stored: []ingest.Series{one()},
		},
		{
			name: "all bits of values, any order and time", status: 204,
			body:   append(bytes.Clone(symbolsOnly), wiretest.AppendMessage(nil, 5, append([]byte{1<<3 | 2, 2, 1, 2}, wiretest.RawSamples(awkward)...))...),
			stored: []ingest.Series{{Labels: one().Labels, Samples: awkward}},
		},
		{name: "the same series twice", status: 204, body: request(up, up), stored: []ingest.Series{one(), one()}},
		{name: "nothing at all", status: 204, body: nil},
		{name: "symbols alone", status: 204, body: symbolsOnly},
		{
			name: "metadata and start timestamps", status: 204,
			body: request(
				writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: []writev2.Sample{{Timestamp: 5, Value: 7, StartTimestamp: 1}}, Metadata: writev2.Metadata{Type: 1}},
				writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Metadata: writev2.Metadata{Type: 1}},
				writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Metadata: writev2.Metadata{Type: 9, HelpRef: 4, UnitRef: 3}}),
			stored:   []ingest.Series{since(1, one()), one(), one()},
			metadata: []ingest.Metadata{wiretest.NewMetadata("up", "counter", "", ""), wiretest.NewMetadata("up", "unknown", "job", "a")},
		},
		{
			name: "a created timestamp of old", status: 204,
			body: append(bytes.Clone(symbolsOnly), wiretest.AppendMessage(nil, 5, oldStyle)...), stored: []ingest.Series{since(99, one())},
		},
		{
			name: "a created timestamp and one that is newer", status: 204,
			body: append(bytes.Clone(symbolsOnly), wiretest.AppendMessage(nil, 5, append(wiretest.Marshal(t, &writev2.TimeSeries{
				LabelsRefs: up.LabelsRefs, Samples: []writev2.Sample{{Timestamp: 5, Value: 7, StartTimestamp: 1}},
			}), 6<<3, 99))...), stored: []ingest.Series{since(1, one())},
		},
		{
			name: "first symbol not empty", status: 400, text: "the first symbol is not the empty string",
			body: wiretest.Marshal(t, &writev2.Request{Symbols: []string{"x", "__name__", "up"}, Timeseries: []writev2.TimeSeries{up}}),
		},
		{name: "no symbols", status: 400, text: "the first symbol is not the empty string", body: seriesOnly},
		{
			name: "reference out of range", status: 400, text: "series 0 of the request: label reference 6 is not below the number of symbols, 6",
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{1, 6}, Samples: sample}, up),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonMalformed, 1),
		},
		{
			name: "largest reference", status: 400, text: "label reference 4294967295",
			body:   request(up, writev2.TimeSeries{LabelsRefs: []uint32{1<<32 - 1, 2}, Samples: sample}),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonMalformed, 1),
		},
		{
			name: "odd references", status: 400, text: "an odd number of label references, 3",
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3}, Samples: sample}, up),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonMalformed, 1),
		},
		{
			name: "no samples", status: 400, text: "has neither samples nor histograms",
			body:   request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs}, up),
			stored: []ingest.Series{one()},
		},
		{
			name: "samples and histograms", status: 400, text: "has both samples and histograms",
			body:   request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Histograms: []writev2.Histogram{{Timestamp: 1}}}, up),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonMalformed, 2),
		},
		{
			name: "no name", status: 400, text: "no metric name",
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{3, 4}, Samples: sample}, up),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonLabels, 1),
		},
		{
			name: "histograms", status: 204,
			body: request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Histograms: []writev2.Histogram{
				writev2.FromIntHistogram(0, 1, remotetest.SomeHistogram()), writev2.FromFloatHistogram(7, 2, remotetest.SomeFloatHistogram()), {Timestamp: 3, ResetHint: 9},
			}}, up),
			stored: []ingest.Series{{Labels: one().Labels, Histograms: []ingest.Histogram{
				{T: 1, H: remotetest.SomeHistogram()}, {T: 2, ST: 7, FH: remotetest.SomeFloatHistogram()}, {T: 3, H: &histogram.Histogram{}},
			}}, one()},
		},
		{
			name: "a created timestamp of old for histograms", status: 204,
			body: append(bytes.Clone(symbolsOnly), wiretest.AppendMessage(nil, 5, append(wiretest.Marshal(t, &writev2.TimeSeries{
				LabelsRefs: up.LabelsRefs, Histograms: []writev2.Histogram{{Timestamp: 3}},
			}), 6<<3, 99))...),
			stored: []ingest.Series{{Labels: one().Labels, Histograms: []ingest.Histogram{{T: 3, ST: 99, H: &histogram.Histogram{}}}}},
		},
		{
			name: "exemplars", status: 204,
			body: request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{3, 4}, Timestamp: 1, Value: -1}}}),
			stored: []ingest.Series{{Labels: one().Labels, Samples: one().Samples, Exemplars: []exemplar.Exemplar{
				{Labels: wiretest.LabelSet("job", "a"), Value: -1, Ts: 1, HasTs: true},
			}}},
		},
		{
			name: "exemplars alone", status: 204,
			body:   request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Exemplars: []writev2.Exemplar{{Timestamp: 1, Value: -1}}}),
			stored: []ingest.Series{{Labels: one().Labels, Exemplars: []exemplar.Exemplar{{Value: -1, Ts: 1, HasTs: true}}}},
		},
		{
			name: "an exemplar with a bad reference", status: 400, text: `series {__name__="up"}: exemplar: an odd number of label references, 1`,
			body: request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Exemplars: []writev2.Exemplar{
				{LabelsRefs: []uint32{3, 99}, Timestamp: 1}, {LabelsRefs: []uint32{3, 4}, Timestamp: 1}, {LabelsRefs: []uint32{3}, Timestamp: 1},
			}}),
			stored: []ingest.Series{{Labels: one().Labels, Samples: one().Samples, Exemplars: []exemplar.Exemplar{
				{Labels: wiretest.LabelSet("job", "a"), Ts: 1, HasTs: true},
			}}},
			rejected: map[ingest.Reason]float64{ingest.ReasonMalformed: 2},
		},
		{
			name: "metadata with a bad reference", status: 400, text: "metadata: reference 6 is not below",
			body:   request(writev2.TimeSeries{LabelsRefs: up.LabelsRefs, Samples: sample, Metadata: writev2.Metadata{UnitRef: 6}}),
			stored: []ingest.Series{one()},
		},
		{
			name: "a long value", status: 400, text: "with a value of 3073 bytes",
			body:   request(writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, 5}, Samples: sample}, up),
			stored: []ingest.Series{one()}, rejected: reject(ingest.ReasonKeyTooLong, 1),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, remotetest.TypeV2) })
	}
}

// TestWriteV2Amplification: a few bytes of references stand for many bytes of
// labels, but not for any number of them.
func TestWriteV2Amplification(t *testing.T) {
	req := &writev2.Request{Symbols: []string{"", "__name__", "up", "job", strings.Repeat("x", 3000)}}
	for range 10_000 {
		req.Timeseries = append(req.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{1, 2, 3, 4}, Samples: []writev2.Sample{{Timestamp: 1, Value: 1}},
		})
	}
	body := wiretest.Marshal(t, req)
	eng := &remotetest.Engine{}
	h := remote.New(remote.Config{Engine: eng, Now: time.Now, MaxBodyBytes: 1 << 20})
	w := remotetest.ServeOnce(h, "/write", remotetest.TypeV2, snappy.Encode(nil, body))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "labels of all series") || eng.Appends != 0 {
		t.Errorf("status %d %q for a body of %d bytes", w.Code, w.Body, len(body))
	}
}
