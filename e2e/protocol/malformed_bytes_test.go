package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/golang/snappy"

	"github.com/promtable/promtable/e2e/harness"
)

// A shape says where a message stands in a request, by the numbers of the
// fields that lead to it, and of which kinds its own fields are, from 1 on:
// bytes, varint, fixed64, integers and doubles that may be packed.
type shape struct {
	name   string
	path   []uint64
	fields string
}

func write1Shapes() []shape {
	return []shape{
		{"request", nil, "b-b"},
		{"series", []uint64{1}, "bbbb"},
		{"label", []uint64{1, 1}, "bb"},
		{"sample", []uint64{1, 2}, "fv"},
		{"exemplar", []uint64{1, 3}, "bfv"},
		{"exemplar label", []uint64{1, 3, 1}, "bb"},
		{"histogram", []uint64{1, 4}, "vffvfvfbidbidvvd"},
		{"negative span", []uint64{1, 4, 8}, "vv"},
		{"positive span", []uint64{1, 4, 11}, "vv"},
		{"metadata", []uint64{3}, "vb-bb"},
	}
}

func write2Shapes() []shape {
	return []shape{
		{"request", nil, "---bb"},
		{"series", []uint64{5}, "ibbbbv"},
		{"sample", []uint64{5, 2}, "fvv"},
		{"histogram", []uint64{5, 3}, "vffvfvfbidbidvvdv"},
		{"negative span", []uint64{5, 3, 8}, "vv"},
		{"positive span", []uint64{5, 3, 11}, "vv"},
		{"exemplar", []uint64{5, 4}, "ifv"},
		{"metadata", []uint64{5, 5}, "v-vv"},
	}
}

func readShapes() []shape {
	return []shape{
		{"request", nil, "bi"},
		{"query", []uint64{1}, "vvbb"},
		{"matcher", []uint64{1, 3}, "vbb"},
		{"hints", []uint64{1, 4}, "vbvvbvv"},
	}
}

// badFields are malformed wherever they stand.
func badFields() map[string][]byte {
	const unknown = 1000
	fields := map[string][]byte{
		"a tag cut off":            {0x80},
		"field number 0":           {0, 0},
		"a varint cut off":         append(harness.AppendTag(nil, unknown, harness.WireVarint), 0x80),
		"a varint of 11 bytes":     append(harness.AppendTag(nil, unknown, harness.WireVarint), "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...),
		"a fixed64 cut off":        append(harness.AppendTag(nil, unknown, harness.WireFixed), "1234567"...),
		"a fixed32 cut off":        append(harness.AppendTag(nil, unknown, 5), "123"...),
		"bytes cut off":            append(harness.AppendTag(nil, unknown, harness.WireBytes), 2, 'x'),
		"bytes of negative length": binary.AppendUvarint(harness.AppendTag(nil, unknown, harness.WireBytes), math.MaxUint64),
	}
	for _, wire := range []uint64{3, 4, 6, 7} { // 3 begins a group that does not end
		fields[fmt.Sprintf("wire type %d", wire)] = harness.AppendTag(nil, unknown, wire)
	}
	return fields
}

// badBytes returns malformed messages of this shape, by what is wrong.
func (s shape) badBytes() map[string][]byte {
	fields := badFields()
	for i, kind := range s.fields {
		number := uint64(i + 1)
		name := func(what string) string { return fmt.Sprintf("field %d %s", number, what) }
		switch kind {
		case 'b':
			fields[name("as a number")] = harness.AppendInt(nil, number, 1)
			fields[name("cut off")] = append(harness.AppendTag(nil, number, harness.WireBytes), 9, 'x')
		case 'v':
			fields[name("as bytes")] = harness.AppendBytes(nil, number, "x")
			fields[name("cut off")] = append(harness.AppendTag(nil, number, harness.WireVarint), 0xff)
		case 'f':
			fields[name("as a varint")] = harness.AppendInt(nil, number, 1)
			fields[name("cut off")] = append(harness.AppendTag(nil, number, harness.WireFixed), "1234567"...)
		case 'i':
			fields[name("as a fixed64")] = append(harness.AppendTag(nil, number, harness.WireFixed), "12345678"...)
			fields[name("cut off inside")] = harness.AppendBytes(nil, number, "\x01\x80")
		case 'd':
			fields[name("as a varint")] = harness.AppendInt(nil, number, 1)
			fields[name("cut off inside")] = harness.AppendBytes(nil, number, "123456789")
		}
	}
	for what, msg := range fields {
		for _, number := range slices.Backward(s.path) {
			msg = harness.AppendBytes(nil, number, msg)
		}
		fields[what] = msg
	}
	return fields
}

func wireFaults(p harness.Protocol) (faults []fault) {
	shapes := write1Shapes()
	if p.Name == harness.RemoteWrite2().Name {
		shapes = write2Shapes()
	}
	for _, s := range shapes {
		broken := s.badBytes()
		for _, what := range slices.Sorted(maps.Keys(broken)) {
			add := func(m *message) { m.rest = broken[what] }
			faults = append(faults, fault{name: s.name + ", " + what, whole: true, add: add, texts: []string{"write request", "protobuf"}})
		}
	}
	return faults
}

// readFaults are reads that must be refused.
func readFaults() (faults []malformed) {
	block := func(name string, data []byte, texts ...string) {
		faults = append(faults, malformed{
			name: "read/" + name, path: "/api/v1/read", header: harness.ProtobufHeader(), body: data, status: 400, texts: texts,
		})
	}
	bad := func(name string, req []byte, texts ...string) { block(name, snappy.Encode(nil, req), texts...) }
	query := func(matchers ...[]byte) []byte {
		q := harness.AppendInt(nil, 2, math.MaxInt64)
		for _, m := range matchers {
			q = harness.AppendBytes(q, 3, m)
		}
		return harness.AppendBytes(nil, 1, q)
	}
	matcher := func(kind int64, value string) []byte {
		return harness.AppendBytes(harness.AppendBytes(harness.AppendInt(nil, 1, kind), 2, "__name__"), 3, value)
	}
	good := query(matcher(0, "floats"))
	for _, b := range badBlocks(good) {
		block(b.name, b.data, b.text)
	}
	for _, s := range readShapes() {
		broken := s.badBytes()
		for _, what := range slices.Sorted(maps.Keys(broken)) {
			bad(s.name+", "+what, slices.Concat(good, broken[what]), "read request")
		}
	}
	for _, kind := range []int64{4, 99, -1} {
		bad(fmt.Sprintf("matcher of type %d", kind), slices.Concat(good, query(matcher(0, "a"), matcher(kind, "b"))), "query 1", "matcher type")
	}
	for _, regex := range []string{"(", "a**", "[z-a]", "\\", "a{1001}", "bad\xff.*"} {
		bad(fmt.Sprintf("=~ %q", regex), slices.Concat(good, query(matcher(2, regex))), "query 1", "regexp")
		bad(fmt.Sprintf("!~ %q", regex), slices.Concat(good, query(matcher(3, regex))), "query 1", "regexp")
	}
	bad("unknown types of answers", slices.Concat(good, harness.AppendInt(harness.AppendInt(nil, 2, 7), 2, 99)), "response types", "7", "99")
	bad("an unknown type of answer, packed", slices.Concat(good, harness.AppendBytes(nil, 2, "\x07")), "response types", "7")
	bad("too many queries", bytes.Repeat(good, 101), "100", "queries")
	bad("too many matchers", query(slices.Repeat([][]byte{matcher(0, "a")}, 10_001)...), "10000", "matchers")
	return faults
}
