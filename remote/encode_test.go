package remote_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/promtable/promtable/remote/engine"
)

// marshal encodes a message with the generated encoder.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// v1 encodes series as a 1.0 request.
func v1(t testing.TB, series ...prompb.TimeSeries) []byte {
	t.Helper()
	return marshal(t, &prompb.WriteRequest{Timeseries: series})
}

// v1Series makes a series; pairs are label names and values.
func v1Series(samples []prompb.Sample, pairs ...string) prompb.TimeSeries {
	ts := prompb.TimeSeries{Samples: samples}
	for i := 0; i < len(pairs); i += 2 {
		ts.Labels = append(ts.Labels, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ts
}

// v2Series makes a series over symbols.
func v2Series(symbols *writev2.SymbolsTable, samples []writev2.Sample, pairs ...string) writev2.TimeSeries {
	ts := writev2.TimeSeries{Samples: samples}
	for _, text := range pairs {
		ts.LabelsRefs = append(ts.LabelsRefs, symbols.Symbolize(text))
	}
	return ts
}

// rawSamples encodes samples as fields of a TimeSeries, in either protocol, with
// all bits: the generated encoders leave out a value of -0.
func rawSamples(samples []engine.Sample) (b []byte) {
	for _, s := range samples {
		b = appendMessage(b, 2, fixed(s.V, s.T, 0))
	}
	return b
}

// fixed encodes a sample of either protocol, with all bits of its value.
func fixed(v float64, t, st int64) []byte {
	msg := binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(v))
	msg = binary.AppendUvarint(append(msg, 2<<3), uint64(t))
	if st != 0 {
		msg = binary.AppendUvarint(append(msg, 3<<3), uint64(st))
	}
	return msg
}

// appendMessage appends a length-delimited field.
func appendMessage(dst []byte, num int, msg []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(num<<3|2))
	dst = binary.AppendUvarint(dst, uint64(len(msg)))
	return append(dst, msg...)
}

// targets returns n series as a real Prometheus sends them, each with one
// sample.
func targets(n int) []prompb.TimeSeries {
	all := make([]prompb.TimeSeries, n)
	for i := range all {
		all[i] = v1Series([]prompb.Sample{{Timestamp: 1_700_000_000_000 + int64(i), Value: float64(i) * 1.25}},
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

// toV2 translates a request to 2.0.
func toV2(all []prompb.TimeSeries) *writev2.Request {
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
		req.Timeseries = append(req.Timeseries, v2Series(&symbols, samples, pairs...))
	}
	req.Symbols = symbols.Symbols()
	return req
}

func lset(pairs ...string) labels.Labels { return labels.FromStrings(pairs...) }
