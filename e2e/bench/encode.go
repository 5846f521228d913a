package main

import (
	"math"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"
)

// A protocol is a version of remote write.
type protocol struct {
	name        string
	contentType string
	version     string // of the header X-Prometheus-Remote-Write-Version
	encoder     func([]labels.Labels) encoder
}

// An encoder makes requests for series it was made for, one sample of each. The
// bytes are valid until the next call.
type encoder func(t []int64, v []float64) []byte

func protocols() []protocol {
	return []protocol{
		{"1.0", "application/x-protobuf", "0.1.0", newEncoder1},
		{"2.0", "application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0", newEncoder2},
	}
}

// newEncoder1 encodes prometheus.WriteRequest, snappy block.
func newEncoder1(series []labels.Labels) encoder {
	encoded := make([][]byte, len(series)) // labels of TimeSeries
	for i, ls := range series {
		ls.Range(func(l labels.Label) {
			var pair []byte
			pair = appendText(pair, 1, l.Name)
			pair = appendText(pair, 2, l.Value)
			encoded[i] = appendBytes(encoded[i], 1, pair)
		})
	}
	return encodeRequests(nil, 1, encoded)
}

// newEncoder2 encodes io.prometheus.write.v2.Request, snappy block.
func newEncoder2(series []labels.Labels) encoder {
	symbols := appendText(nil, 4, "") // the first has to be empty
	refs := map[string]uint64{"": 0}
	reference := func(s string) uint64 {
		ref, ok := refs[s]
		if !ok {
			ref = uint64(len(refs))
			refs[s] = ref
			symbols = appendText(symbols, 4, s)
		}
		return ref
	}
	encoded := make([][]byte, len(series)) // labels_refs of TimeSeries
	for i, ls := range series {
		var refs []byte
		ls.Range(func(l labels.Label) {
			refs = protowire.AppendVarint(refs, reference(l.Name))
			refs = protowire.AppendVarint(refs, reference(l.Value))
		})
		encoded[i] = appendBytes(nil, 1, refs)
	}
	return encodeRequests(symbols, 5, encoded)
}

// encodeRequests returns an encoder of requests that begin with head, and hold
// the series as messages of field number. Both versions have samples as field 2
// of a series, and values and times as fields 1 and 2 of a sample.
func encodeRequests(head []byte, number protowire.Number, series [][]byte) encoder {
	var request, sample, compressed []byte
	return func(t []int64, v []float64) []byte {
		request = append(request[:0], head...)
		for i, ls := range series {
			sample = appendSample(sample[:0], t[i], v[i])
			request = protowire.AppendTag(request, number, protowire.BytesType)
			request = protowire.AppendVarint(request, uint64(len(ls)+1+protowire.SizeBytes(len(sample))))
			request = append(request, ls...)
			request = appendBytes(request, 2, sample)
		}
		compressed = snappy.Encode(compressed[:cap(compressed)], request)
		return compressed
	}
}

// appendSample appends a sample as generated code does: zeros are left out.
func appendSample(b []byte, t int64, v float64) []byte {
	if v != 0 {
		b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, math.Float64bits(v))
	}
	if t != 0 {
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(t))
	}
	return b
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

func appendBytes(b []byte, number protowire.Number, data []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), data)
}
