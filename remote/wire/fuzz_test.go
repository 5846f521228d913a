package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/wire/wiretest"
	"github.com/promtable/promtable/series"
)

const fuzzMaxBody = 1 << 20

// testDecoder is a decoder of either version.
type testDecoder interface {
	Decode(body []byte, rejected *ingest.Rejected) (WriteRequest, error)
	Release() bool
}

// newDecoder returns a decoder of version 1 or 2.
func newDecoder(version int, cache SeriesCache, maxBody int) testDecoder {
	if version == 2 {
		d := NewV2(maxBody)
		d.Use(cache)
		return d
	}
	d := NewV1(maxBody)
	d.Use(cache)
	return d
}

// noCache has no series.
type noCache struct{}

func (noCache) Lookup(ingest.WireText) *seriescache.Entry { return nil }

func (noCache) Symbols() *seriescache.SymbolTable { return nil }

// decode decodes a copy of body that is overwritten afterwards.
func decode(version int, body []byte, rejected *ingest.Rejected) (WriteRequest, error) {
	return decodeWith(newDecoder(version, noCache{}, fuzzMaxBody), body, rejected)
}

func decodeWith(d testDecoder, body []byte, rejected *ingest.Rejected) (WriteRequest, error) {
	body = bytes.Clone(body)
	req, err := d.Decode(body, rejected)
	for i := range body {
		body[i] ^= 0xa5
	}
	return req, err
}

// repeater decodes and stores a request until its engine has cached the series.
type repeater struct {
	engine   *engine.Engine
	decoders [3]testDecoder // by version
}

func newRepeater(t testing.TB) *repeater { return newSmallRepeater(t, 0) }

// newSmallRepeater returns one that has only so many bytes of symbols at a time,
// if it is not 0.
func newSmallRepeater(t testing.TB, symbolBytes int) *repeater {
	t.Helper()
	store, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: bucketstore.Tables(bucketstore.Retention{})})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(engine.Config{
		Store: wiretest.IdleStore{Store: store}, Appender: &wiretest.IdleAppender{Appender: bucketstore.NewDirect(store, schema, time.Now, nil)},
		Schema: schema, Now: time.Now, CurrentInterval: time.Hour, SeriesCache: seriescache.Config{MaxSymbolBytes: symbolBytes},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(eng.Close(context.Background()), store.Close()); err != nil {
			t.Error(err)
		}
	})
	r := &repeater{engine: eng}
	for version := 1; version <= 2; version++ {
		r.decoders[version] = newDecoder(version, eng, fuzzMaxBody)
	}
	return r
}

// check decodes body, which was decoded before with this result, stores what is
// in it and decodes it again: series that are cached then must be the same, and
// so must be all else.
func (r *repeater) check(t *testing.T, version int, body []byte, want []string, wantRejected *ingest.Rejected) {
	t.Helper()
	for round := range 3 {
		var rejected ingest.Rejected
		req, err := decodeWith(r.decoders[version], body, &rejected)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		// Append may change histograms, so what is compared comes before.
		if got := checkDecoded(t, req); !slices.Equal(got, want) {
			t.Errorf("round %d: decoded\n%q\nwant\n%q", round, got, want)
		}
		if !maps.Equal(rejected.Samples, wantRejected.Samples) || fmt.Sprint(rejected.Err()) != fmt.Sprint(wantRejected.Err()) {
			t.Errorf("round %d: rejected\n%v\nwant\n%v", round, rejected.Err(), wantRejected.Err())
		}
		var refused ingest.Rejected
		if _, err := r.engine.Append(t.Context(), req.Series, &refused); err != nil {
			t.Fatal(err)
		}
		if round == 2 && refused.Err() == nil {
			for _, s := range req.Series {
				if s.Cached == nil && s.WireText.Form != 0 && len(s.WireText.Text) < 3000 {
					t.Errorf("series %s is not cached yet", s.Labels)
				}
			}
		}
		r.release(version)
	}
}

// release releases a decoder as a handler does.
func (r *repeater) release(version int) {
	if !r.decoders[version].Release() {
		r.decoders[version] = newDecoder(version, r.engine, fuzzMaxBody)
	}
}

// seed adds a good request, its parts and some junk.
func seed(f *testing.F, m proto.Message) {
	f.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add(body[:len(body)/2])
	f.Add(append(bytes.Clone(body), body...))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{1<<3 | 2, 0, 5<<3 | 2, 0})
}

// checkDecoded checks what holds for every request that could be decoded, and
// writes it down to be compared.
func checkDecoded(t *testing.T, req WriteRequest) []string {
	t.Helper()
	n := 0
	var text []string
	for _, s := range req.Series {
		s.Labels = s.DecodedLabels()
		last := ""
		s.Labels.Range(func(l labels.Label) {
			if l.Value == "" || l.Name < last {
				t.Errorf("labels %q: empty value, or not sorted", s.Labels)
			}
			last = l.Name
		})
		size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
		if size == 0 {
			t.Errorf("series %s with nothing", s.Labels)
		}
		n += size
		text = append(text, wiretest.Describe(s))
	}
	if n != req.Size {
		t.Errorf("%d samples, said to be %d", n, req.Size)
	}
	for _, m := range req.Metadata {
		text = append(text, fmt.Sprintf("%q", m))
	}
	return text
}

// hint returns the reset hint that a number stands for. The generated decoders
// take any number for one.
func hint(n int32) histogram.CounterResetHint {
	if n < 0 || n > 3 {
		return histogram.UnknownCounterReset
	}
	return histogram.CounterResetHint(n)
}

// sortedExemplar makes an exemplar of what a generated decoder found; ok is
// false if its labels are too long.
func sortedExemplar(pairs []labels.Label, t int64, v float64) (x exemplar.Exemplar, ok bool) {
	b := labels.NewScratchBuilder(len(pairs))
	size := 0
	for _, p := range pairs {
		size += len(p.Name) + len(p.Value)
		if size > maxExemplarBytes {
			return x, false
		}
		b.Add(p.Name, p.Value)
	}
	b.Sort()
	return exemplar.Exemplar{Labels: b.Labels(), Ts: t, Value: v}, true
}

// dropRepeats drops what is the same as what stands before it.
func dropRepeats(texts []string) []string { return slices.Compact(texts) }

// expect makes the label set that a generated decoder's labels should become;
// ok is false if they are too long.
func expect(pairs []labels.Label) (ls labels.Labels, ok bool) {
	b := labels.NewScratchBuilder(len(pairs))
	size := 0
	for _, p := range pairs {
		if p.Value == "" {
			continue
		}
		if len(p.Name) > 3072 || len(p.Value) > 3072 {
			return ls, false
		}
		size += len(p.Name) + len(p.Value)
		b.Add(p.Name, p.Value)
	}
	b.Sort()
	return b.Labels(), size <= maxLabelBytes
}

// FuzzDecodeV1 compares with the generated decoder whatever both take for a
// request.
func FuzzDecodeV1(f *testing.F) {
	seed(f, &prompb.WriteRequest{
		Timeseries: []prompb.TimeSeries{
			{
				Labels:     []prompb.Label{{Name: "job", Value: "a"}, {Name: "__name__", Value: "up"}, {Name: "x"}},
				Samples:    []prompb.Sample{{Timestamp: -1, Value: 1}, {Timestamp: math.MaxInt64, Value: math.NaN()}},
				Exemplars:  []prompb.Exemplar{{Value: 1}},
				Histograms: []prompb.Histogram{{Schema: 3}},
			},
			{},
		},
		Metadata: []prompb.MetricMetadata{{Help: "help"}},
	})
	again := newRepeater(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		var rejected ingest.Rejected
		req, err := decode(1, body, &rejected)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		got := checkDecoded(t, req)
		again.check(t, 1, body, got, &rejected)
		var theirs prompb.WriteRequest
		if proto.Unmarshal(body, &theirs) != nil {
			return // it looks into parts that we pass over
		}
		var want []string
		for _, ts := range theirs.Timeseries {
			var pairs []labels.Label
			for _, l := range ts.Labels {
				pairs = append(pairs, labels.Label{Name: l.Name, Value: l.Value})
			}
			one := ingest.Series{}
			for _, s := range ts.Samples {
				one.Samples = append(one.Samples, ingest.Sample{T: s.Timestamp, V: s.Value})
			}
			for _, h := range ts.Histograms {
				h.ResetHint = prompb.Histogram_ResetHint(hint(int32(h.ResetHint)))
				one.Histograms = append(one.Histograms, newHistogram(h.Timestamp, 0, h.IsFloatHistogram(), h.ToIntHistogram, h.ToFloatHistogram))
			}
			for _, x := range ts.Exemplars {
				var pairs []labels.Label
				for _, l := range x.Labels {
					pairs = append(pairs, labels.Label{Name: l.Name, Value: l.Value})
				}
				if x, ok := sortedExemplar(pairs, x.Timestamp, x.Value); ok {
					one.Exemplars = append(one.Exemplars, x)
				}
			}
			var ok bool
			if one.Labels, ok = expect(pairs); ok && len(one.Samples)+len(one.Histograms)+len(one.Exemplars) > 0 {
				want = append(want, wiretest.Describe(one))
			}
		}
		var entries []string
		for _, m := range theirs.Metadata {
			entries = append(entries, fmt.Sprintf("%q", ingest.Metadata{Family: m.MetricFamilyName, Metadata: metadata.Metadata{
				Type: metricType(uint64(m.Type)), Unit: m.Unit, Help: m.Help,
			}}))
		}
		want = append(want, dropRepeats(entries)...)
		if !slices.Equal(got, want) {
			t.Errorf("decoded\n%q\nthe generated decoder\n%q", got, want)
		}
	})
}

// newHistogram returns one of two histograms.
func newHistogram(t, st int64, isFloat bool, h func() *histogram.Histogram, fh func() *histogram.FloatHistogram) ingest.Histogram {
	if isFloat {
		return ingest.Histogram{T: t, ST: st, FH: fh()}
	}
	return ingest.Histogram{T: t, ST: st, H: h()}
}

// FuzzDecodeV2 compares with the generated decoder whatever both take for a
// request.
func FuzzDecodeV2(f *testing.F) {
	seed(f, &writev2.Request{
		Symbols: []string{"", "__name__", "up", "job", "a"},
		Timeseries: []writev2.TimeSeries{
			{
				LabelsRefs: []uint32{3, 4, 1, 2, 3, 0},
				Samples:    []writev2.Sample{{Timestamp: -1, Value: 1, StartTimestamp: 7}, {Timestamp: math.MaxInt64, Value: math.NaN()}},
				Exemplars:  []writev2.Exemplar{{LabelsRefs: []uint32{1, 2}}},
				Metadata:   writev2.Metadata{Type: 1, HelpRef: 2},
			},
			{LabelsRefs: []uint32{1, 2}, Histograms: []writev2.Histogram{{Schema: 3, StartTimestamp: 5}}},
			{LabelsRefs: []uint32{1, 9}},
		},
	})
	for _, body := range oddRequests() {
		f.Add(body)
	}
	again := newRepeater(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		var rejected ingest.Rejected
		req, err := decode(2, body, &rejected)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		got := checkDecoded(t, req)
		again.check(t, 2, body, got, &rejected)
		var theirs writev2.Request
		if proto.Unmarshal(body, &theirs) != nil {
			return // it looks into parts that we pass over
		}
		var want, entries []string
		for _, ts := range theirs.Timeseries {
			pairs, ok := resolveV2(ts.LabelsRefs, theirs.Symbols)
			if !ok || (len(ts.Samples) > 0 && len(ts.Histograms) > 0) || len(ts.Samples)+len(ts.Histograms)+len(ts.Exemplars) == 0 {
				continue
			}
			one := ingest.Series{}
			for _, s := range ts.Samples {
				one.Samples = append(one.Samples, ingest.Sample{T: s.Timestamp, V: s.Value, ST: s.StartTimestamp})
			}
			for _, h := range ts.Histograms {
				h.ResetHint = writev2.Histogram_ResetHint(hint(int32(h.ResetHint)))
				one.Histograms = append(one.Histograms, newHistogram(h.Timestamp, h.StartTimestamp, h.IsFloatHistogram(), h.ToIntHistogram, h.ToFloatHistogram))
			}
			for _, x := range ts.Exemplars {
				pairs, ok := resolveV2(x.LabelsRefs, theirs.Symbols)
				if !ok {
					continue
				}
				if x, ok := sortedExemplar(pairs, x.Timestamp, x.Value); ok {
					one.Exemplars = append(one.Exemplars, x)
				}
			}
			if one.Labels, ok = expect(pairs); !ok {
				continue
			}
			if m, err := ts.ToMetadata(theirs.Symbols); err == nil && (ts.Metadata.Type != 0 || ts.Metadata.HelpRef != 0 || ts.Metadata.UnitRef != 0) {
				entries = append(entries, fmt.Sprintf("%q", ingest.Metadata{Family: ingest.FamilyName(one.Labels.Get(labels.MetricName), m.Type), Metadata: m}))
			}
			if len(one.Samples)+len(one.Histograms)+len(one.Exemplars) > 0 {
				want = append(want, wiretest.Describe(one))
			}
		}
		want = append(want, dropRepeats(entries)...)
		if !slices.Equal(got, want) && !isBeyondGenerated(t, body) {
			t.Errorf("decoded\n%q\nthe generated decoder\n%q", got, want)
		}
	})
}

func resolveV2(refs []uint32, symbols []string) (pairs []labels.Label, ok bool) {
	if len(refs)%2 != 0 {
		return nil, false
	}
	for i := 0; i < len(refs); i += 2 {
		if int(refs[i]) >= len(symbols) || int(refs[i+1]) >= len(symbols) {
			return nil, false
		}
		pairs = append(pairs, labels.Label{Name: symbols[refs[i]], Value: symbols[refs[i+1]]})
	}
	return pairs, true
}

// isBeyondGenerated says whether body has what the generated decoder takes
// otherwise: a number of more than 32 bits where a reference or a type should
// be, which it cuts to one that may exist, metadata in several parts, which it
// merges, and a start timestamp of a whole series, which it does not have.
func isBeyondGenerated(t *testing.T, body []byte) bool {
	t.Helper()
	long := func(n uint64) bool { return n > math.MaxInt32 }
	for f := range fields(t, body) {
		if f.num != 5 {
			continue
		}
		metadata := 0
		for part := range fields(t, f.bytes) {
			switch part.num {
			case 1:
				refs, err := appendRefs(nil, part)
				if err != nil || slices.ContainsFunc(refs, long) {
					return true
				}
			case 4:
				for x := range fields(t, part.bytes) {
					if refs, err := appendRefs(nil, x); x.num == 1 && (err != nil || slices.ContainsFunc(refs, long)) {
						return true
					}
				}
			case 5:
				metadata++
				for m := range fields(t, part.bytes) {
					if long(m.value) {
						return true
					}
				}
			case 6:
				return true
			}
		}
		if metadata > 1 {
			return true
		}
	}
	return false
}

// fields returns the fields of a message that is one.
func fields(t *testing.T, msg []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(msg) > 0 {
			f, rest, err := cutField(msg)
			if err != nil {
				t.Fatal(err)
			}
			if msg = rest; !yield(f) {
				return
			}
		}
	}
}

// checkBadRequest: what cannot be decoded is the sender's fault.
func checkBadRequest(t *testing.T, err error) {
	t.Helper()
	if request.Status(t.Context(), request.Remote, err) != 400 {
		t.Errorf("error %v is no bad request", err)
	}
}

// FuzzReadRequest: no request may cause a panic.
func FuzzReadRequest(f *testing.F) {
	seed(f, &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{1, 0},
		Queries: []*prompb.Query{{
			StartTimestampMs: math.MinInt64, EndTimestampMs: math.MaxInt64,
			Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "job", Value: "a|b"}},
			Hints:    &prompb.ReadHints{Func: "series", Grouping: []string{"a"}},
		}, {}},
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := ReadRequest(body, 10)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		if len(req.Queries) > 10 {
			t.Errorf("%d queries", len(req.Queries))
		}
		if _, err := Queries(req.Queries); err != nil {
			checkBadRequest(t, err)
		}
	})
}
