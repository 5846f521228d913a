package remote

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/remote/engine"
)

const fuzzMaxBody = 1 << 20

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
func checkDecoded(t *testing.T, req writeRequest) []string {
	t.Helper()
	n := 0
	var text []string
	for _, s := range req.series {
		last := ""
		s.Labels.Range(func(l labels.Label) {
			if l.Value == "" || l.Name < last {
				t.Errorf("labels %q: empty value, or not sorted", s.Labels)
			}
			last = l.Name
		})
		if len(s.Samples) == 0 {
			t.Errorf("series %s without samples", s.Labels)
		}
		n += len(s.Samples)
		text = append(text, describe(s.Labels, s.Samples))
	}
	if n != req.samples {
		t.Errorf("%d samples, said to be %d", n, req.samples)
	}
	return text
}

func describe(ls labels.Labels, samples []engine.Sample) string {
	var b strings.Builder
	b.WriteString(ls.String())
	for _, s := range samples {
		fmt.Fprintf(&b, " %d:%x", s.T, math.Float64bits(s.V))
	}
	return b.String()
}

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
	f.Fuzz(func(t *testing.T, body []byte) {
		var rejected engine.Rejected
		req, err := decodeV1(bytes.Clone(body), fuzzMaxBody, &rejected)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		got := checkDecoded(t, req)
		var theirs prompb.WriteRequest
		if proto.Unmarshal(body, &theirs) != nil {
			return // it looks into parts that we only count
		}
		var want []string
		for _, ts := range theirs.Timeseries {
			var pairs []labels.Label
			for _, l := range ts.Labels {
				pairs = append(pairs, labels.Label{Name: l.Name, Value: l.Value})
			}
			var samples []engine.Sample
			for _, s := range ts.Samples {
				samples = append(samples, engine.Sample{T: s.Timestamp, V: s.Value})
			}
			if ls, ok := expect(pairs); ok && len(samples) > 0 {
				want = append(want, describe(ls, samples))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("decoded\n%q\nthe generated decoder\n%q", got, want)
		}
	})
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
	f.Fuzz(func(t *testing.T, body []byte) {
		var rejected engine.Rejected
		req, err := decodeV2(bytes.Clone(body), fuzzMaxBody, &rejected)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		got := checkDecoded(t, req)
		var theirs writev2.Request
		if proto.Unmarshal(body, &theirs) != nil {
			return // it looks into parts that we only count
		}
		var want []string
		for _, ts := range theirs.Timeseries {
			pairs, ok := resolveV2(ts.LabelsRefs, theirs.Symbols)
			if !ok || len(ts.Samples) == 0 || len(ts.Histograms) > 0 {
				continue
			}
			var samples []engine.Sample
			for _, s := range ts.Samples {
				samples = append(samples, engine.Sample{T: s.Timestamp, V: s.Value})
			}
			if ls, ok := expect(pairs); ok {
				want = append(want, describe(ls, samples))
			}
		}
		if !slices.Equal(got, want) && !hasLongRefs(t, body) {
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

// hasLongRefs says whether a label reference of more than 32 bits is in body:
// the generated decoder cuts it to one that may exist, we refuse it.
func hasLongRefs(t *testing.T, body []byte) bool {
	t.Helper()
	for len(body) > 0 {
		f, rest, err := cutField(body)
		if err != nil {
			t.Fatal(err)
		}
		body = rest
		for f.num == 5 && len(f.bytes) > 0 {
			part, next, err := cutField(f.bytes)
			if err != nil {
				t.Fatal(err)
			}
			f.bytes = next
			if part.num != 1 {
				continue
			}
			refs, err := appendRefs(nil, part)
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(refs, func(ref uint64) bool { return ref > math.MaxUint32 }) {
				return true
			}
		}
	}
	return false
}

// checkBadRequest: what cannot be decoded is the sender's fault.
func checkBadRequest(t *testing.T, err error) {
	t.Helper()
	var known *statusError
	if !errors.As(err, &known) || known.status != 400 {
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
		req, err := decodeReadRequest(body, 10)
		if err != nil {
			checkBadRequest(t, err)
			return
		}
		if len(req.Queries) > 10 {
			t.Errorf("%d queries", len(req.Queries))
		}
		if _, err := toQueries(req.Queries); err != nil {
			checkBadRequest(t, err)
		}
	})
}
