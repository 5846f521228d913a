package harness

import "encoding/binary"

// Requests are encoded by hand: upstream's encoders turn -0 into 0, and refuse
// what a sender must not send.

// Wire types of protocol buffers.
const (
	WireVarint = 0
	WireFixed  = 1 // 8 bytes
	WireBytes  = 2
)

// AppendTag appends the number of a field and its wire type.
func AppendTag(dst []byte, field, wire uint64) []byte {
	return binary.AppendUvarint(dst, field<<3|wire)
}

// AppendBytes appends a field of bytes, a string or a message.
func AppendBytes[T string | []byte](dst []byte, field uint64, b T) []byte {
	dst = binary.AppendUvarint(AppendTag(dst, field, WireBytes), uint64(len(b)))
	return append(dst, b...)
}

// AppendInt appends a field of wire type WireVarint.
func AppendInt(dst []byte, field uint64, v int64) []byte {
	return binary.AppendUvarint(AppendTag(dst, field, WireVarint), uint64(v))
}

// AppendSample appends the fields of a sample: 1 to 3, of which start is a start
// timestamp in milliseconds. Like generated code it leaves out those that are 0, but not -0.
func AppendSample(dst []byte, p Point, start int64) []byte {
	if p.Bits != 0 {
		dst = binary.LittleEndian.AppendUint64(AppendTag(dst, 1, WireFixed), p.Bits)
	}
	if p.T != 0 {
		dst = AppendInt(dst, 2, p.T)
	}
	if start != 0 {
		dst = AppendInt(dst, 3, start)
	}
	return dst
}

// EncodeWrite1 encodes a prometheus.WriteRequest, which has no start timestamps.
func EncodeWrite1(series []SentSeries) []byte {
	var req, ts, msg []byte
	for _, s := range series {
		ts = ts[:0]
		for i := 0; i+1 < len(s.Labels); i += 2 {
			msg = AppendBytes(AppendBytes(msg[:0], 1, s.Labels[i]), 2, s.Labels[i+1])
			ts = AppendBytes(ts, 1, msg)
		}
		for _, p := range s.Points {
			msg = AppendSample(msg[:0], p, 0)
			ts = AppendBytes(ts, 2, msg)
		}
		for _, h := range s.Histograms {
			ts = AppendBytes(ts, 4, h)
		}
		req = AppendBytes(req, 1, ts)
	}
	return req
}

// encodeWrite2 encodes an io.prometheus.write.v2.Request.
func encodeWrite2(series []SentSeries) []byte {
	symbols := NewSymbolTable()
	var all, ts, msg []byte
	for _, s := range series {
		msg = msg[:0]
		for _, text := range s.Labels {
			msg = binary.AppendUvarint(msg, symbols.Ref(text))
		}
		ts = AppendBytes(ts[:0], 1, msg)
		for i, p := range s.Points {
			start := int64(0)
			if s.Starts != nil {
				start = s.Starts[i]
			}
			msg = AppendSample(msg[:0], p, start)
			ts = AppendBytes(ts, 2, msg)
		}
		for _, h := range s.Histograms {
			ts = AppendBytes(ts, 3, h)
		}
		all = AppendBytes(all, 5, ts)
	}
	var req []byte
	for _, text := range symbols.List {
		req = AppendBytes(req, 4, text)
	}
	return append(req, all...)
}

// A SymbolTable numbers strings in the order in which they are added.
type SymbolTable struct {
	refs map[string]uint64
	List []string // by number
}

// NewSymbolTable returns a table of the empty string.
func NewSymbolTable() *SymbolTable {
	return &SymbolTable{refs: map[string]uint64{"": 0}, List: []string{""}}
}

// Ref returns the number of text, which it adds if it is new.
func (s *SymbolTable) Ref(text string) uint64 {
	ref, ok := s.refs[text]
	if !ok {
		ref = uint64(len(s.List))
		s.refs[text] = ref
		s.List = append(s.List, text)
	}
	return ref
}
