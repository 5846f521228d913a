// Package wiretest encodes write requests for tests, and describes what was
// decoded of them.
package wiretest

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/remote/ingest"
)

// EncodeV1 encodes series with all bits of their values.
func EncodeV1(t testing.TB, all []ingest.Series) (body []byte) {
	t.Helper()
	for _, s := range all {
		ts := Marshal(t, &prompb.TimeSeries{Labels: prompb.FromLabels(s.Labels, nil)})
		body = AppendMessage(body, 1, append(ts, RawSamples(s.Samples)...))
	}
	return body
}

// EncodeV2 does the same for 2.0: each label is two symbols of its own.
func EncodeV2(all []ingest.Series) []byte {
	symbols := AppendMessage(nil, 4, nil)
	var body []byte
	ref := byte(0)
	for _, s := range all {
		var refs []byte
		s.Labels.Range(func(l labels.Label) {
			symbols = AppendMessage(AppendMessage(symbols, 4, []byte(l.Name)), 4, []byte(l.Value))
			refs = append(refs, ref+1, ref+2)
			ref += 2
		})
		body = AppendMessage(body, 5, append(AppendMessage(nil, 1, refs), RawSamples(s.Samples)...))
	}
	return append(symbols, body...)
}

// NewMetadata is the metadata of a family.
func NewMetadata(family string, kind model.MetricType, unit, help string) ingest.Metadata {
	return ingest.Metadata{Family: family, Metadata: metadata.Metadata{Type: kind, Unit: unit, Help: help}}
}

// Marshal encodes a message with the generated encoder.
func Marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// V1 encodes series as a 1.0 request.
func V1(t testing.TB, series ...prompb.TimeSeries) []byte {
	t.Helper()
	return Marshal(t, &prompb.WriteRequest{Timeseries: series})
}

// V1Series makes a series; pairs are label names and values.
func V1Series(samples []prompb.Sample, pairs ...string) prompb.TimeSeries {
	ts := prompb.TimeSeries{Samples: samples}
	for i := 0; i < len(pairs); i += 2 {
		ts.Labels = append(ts.Labels, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ts
}

// V2Series makes a series over symbols.
func V2Series(symbols *writev2.SymbolsTable, samples []writev2.Sample, pairs ...string) writev2.TimeSeries {
	ts := writev2.TimeSeries{Samples: samples}
	for _, text := range pairs {
		ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(text))
	}
	return ts
}

// RawSamples encodes samples as fields of a TimeSeries, in either protocol, with
// all bits: the generated encoders leave out a value of -0.
func RawSamples(samples []ingest.Sample) (b []byte) {
	for _, s := range samples {
		b = AppendMessage(b, 2, RawSample(s.V, s.T, 0))
	}
	return b
}

// RawSample encodes a sample of either protocol, with all bits of its value.
func RawSample(v float64, t, st int64) []byte {
	msg := binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(v))
	msg = binary.AppendUvarint(append(msg, 2<<3), uint64(t))
	if st != 0 {
		msg = binary.AppendUvarint(append(msg, 3<<3), uint64(st))
	}
	return msg
}

// AppendMessage appends a length-delimited field.
func AppendMessage(dst []byte, num int, msg []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(num<<3|2))
	dst = binary.AppendUvarint(dst, uint64(len(msg)))
	return append(dst, msg...)
}

// Targets returns n series as a real Prometheus sends them, each with one
// sample.
func Targets(n int) []prompb.TimeSeries {
	all := make([]prompb.TimeSeries, n)
	for i := range all {
		all[i] = V1Series([]prompb.Sample{{Timestamp: 1_700_000_000_000 + int64(i), Value: float64(i) * 1.25}},
			"__name__", "container_network_receive_bytes_total",
			"cluster", "production-europe-west1",
			"container", "POD",
			"endpoint", "https-metrics",
			"id", fmt.Sprintf("/kubepods/burstable/pod%08x-c3a1-4f4e-9c1d-%012x", i, i*7),
			"image", "registry.k8s.io/pause:3.9",
			"instance", fmt.Sprintf("10.0.%d.%d:10250", i/250%250, i%250),
			"interface", "eth0",
			"job", "kubelet",
			"namespace", fmt.Sprintf("team-%d", i%40),
			"node", fmt.Sprintf("gke-production-pool-%d", i%100),
			"pod", fmt.Sprintf("frontend-%d-%x", i%100, i),
		)
	}
	return all
}

// ToV2 translates a request to 2.0.
func ToV2(all []prompb.TimeSeries) *writev2.Request {
	symbols := writev2.NewSymbolTable()
	req := &writev2.Request{}
	for _, ts := range all {
		var pairs []string
		for _, l := range ts.Labels {
			pairs = append(pairs, l.Name, l.Value)
		}
		var samples []writev2.Sample
		for _, s := range ts.Samples {
			samples = append(samples, writev2.Sample{Timestamp: s.Timestamp, Value: s.Value})
		}
		req.Timeseries = append(req.Timeseries, V2Series(&symbols, samples, pairs...))
	}
	req.Symbols = symbols.Symbols()
	return req
}

func LabelSet(pairs ...string) labels.Labels { return labels.FromStrings(pairs...) }
