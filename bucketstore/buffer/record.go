package buffer

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// A frame of the log holds the requests of one commit, or a part of it. A large request is
// written in several parts, all with its stamp:
//
//	frame   = length uint32 | CRC-32C of body uint32 | CRC-32C of these 8 bytes uint32 | body
//	          all three little-endian
//	body    = { request }
//	request = stamp uvarint | samples uvarint | { sample }
//	sample  = head uvarint [ series ] [ time varint ] value
//	head    = zig-zag(number of the series - that of the sample before) << 1 | has time
//	series  = length uvarint | series key    if the number is the next new one
//	time    = distance from the time of the sample before, in milliseconds;
//	          without it there is none. Both are 0 before the first of a request.
//	value   = as in open chunks, from the bits of the float before of the series
//
// Series are numbered in each segment from 0, in order of first use. One may get another number later,
// with its key: after a write that was cut off.
const frameHead = 12

// numbered counts the series that have a number in a segment, and the bytes of their keys.
type numbered struct {
	n     uint64
	bytes int
}

// appendRequest appends a request, or a part of one. It numbers the series that are new in
// this numbering, and returns the new counts.
func appendRequest(dst []byte, samples []bucketstore.Sample, stamp int64, numbering uint64, count numbered) ([]byte, numbered) {
	dst = binary.AppendUvarint(dst, uint64(stamp))
	dst = binary.AppendUvarint(dst, uint64(len(samples)))
	var id, t int64
	for i := range samples {
		s := &samples[i]
		r := s.Ref.(*ref)
		isNew := r.numbering != numbering
		if isNew {
			r.numbering, r.id, r.bits = numbering, uint32(count.n), 0
			count.n++
			count.bytes += len(r.key)
		}
		head := zigzag(int64(r.id)-id) << 1
		if s.T != t {
			head |= 1
		}
		dst = binary.AppendUvarint(dst, head)
		if isNew {
			dst = binary.AppendUvarint(dst, uint64(len(r.key)))
			dst = append(dst, r.key...)
		}
		if s.T != t {
			dst = binary.AppendVarint(dst, s.T-t)
		}
		id, t = int64(r.id), s.T
		next := floatBits(s)
		dst = chunk.AppendOpenValue(dst, r.bits, next, s.Value)
		if s.Value == nil {
			r.bits = next
		}
	}
	return dst, count
}

func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// floatBits returns the bits of the float of a sample.
func floatBits(s *bucketstore.Sample) uint64 { return math.Float64bits(s.V) }

// A segmentReader decodes the frames of one segment.
type segmentReader struct {
	// ref returns the ref of a series key.
	ref func(key string) *ref
	// numbered are the series by number, with the bits of their last float.
	numbered []numberedSeries
	// samples are the samples read so far of the request with this stamp.
	samples []bucketstore.Sample
	stamp   int64
}

type numberedSeries struct {
	ref  *ref
	bits uint64
}

// errRecord says that a frame with a good checksum cannot be decoded.
func errRecord(what string) error { return fmt.Errorf("%w: %s", series.ErrCorrupt, what) }

// frame calls fn with each request that is complete, in this body and the bodies before.
// All parts of a request come in one call, so that its last write at a time is the right
// one. The samples refer to the bodies and are valid during the call.
func (r *segmentReader) frame(body []byte, fn func(samples []bucketstore.Sample, stamp int64) error) error {
	for len(body) > 0 {
		stamp, n := binary.Uvarint(body)
		if n <= 0 || stamp > math.MaxInt64/2 {
			return errRecord("a stamp")
		}
		body = body[n:]
		count, n := binary.Uvarint(body)
		if n <= 0 || count > uint64(len(body)) {
			return errRecord("a number of samples")
		}
		if int64(stamp) != r.stamp {
			if err := r.finishRequest(fn); err != nil {
				return err
			}
			r.stamp = int64(stamp)
		}
		var err error
		if body, err = r.readPart(body[n:], int(count)); err != nil {
			return err
		}
	}
	return nil
}

// finishRequest calls fn with the last request.
func (r *segmentReader) finishRequest(fn func(samples []bucketstore.Sample, stamp int64) error) error {
	if len(r.samples) == 0 {
		return nil
	}
	err := fn(r.samples, r.stamp)
	r.samples = r.samples[:0]
	return err
}

// readPart adds count samples to the request and returns the bytes after them.
func (r *segmentReader) readPart(body []byte, count int) (rest []byte, err error) {
	var id, t int64
	for range count {
		head, n := binary.Uvarint(body)
		if n <= 0 {
			return nil, errRecord("a sample")
		}
		body = body[n:]
		id += unzigzag(head >> 1)
		if body, err = r.readSeries(body, id); err != nil {
			return nil, err
		}
		if head&1 != 0 {
			delta, n := binary.Varint(body)
			if n <= 0 {
				return nil, errRecord("a time")
			}
			body, t = body[n:], t+delta
		}
		if t < 0 || t > series.MaxTime {
			return nil, errRecord("a time out of range")
		}
		s := &r.numbered[id]
		next, value, after, ok := chunk.CutOpenValue(body, s.bits)
		if !ok {
			return nil, errRecord("a value")
		}
		body = after
		if value == nil {
			s.bits = next
		}
		r.samples = append(r.samples, bucketstore.Sample{Ref: s.ref, T: t, V: math.Float64frombits(next), Value: value})
	}
	return body, nil
}

// readSeries reads the key of a series from the front of body if id is new.
func (r *segmentReader) readSeries(body []byte, id int64) (rest []byte, err error) {
	switch {
	case id >= 0 && id < int64(len(r.numbered)):
		return body, nil
	case id != int64(len(r.numbered)):
		return nil, errRecord("a number of a series")
	}
	size, n := binary.Uvarint(body)
	if n <= 0 || size > series.MaxSeriesKey || size > uint64(len(body)-n) {
		return nil, errRecord("a series key")
	}
	body = body[n:]
	r.numbered = append(r.numbered, numberedSeries{ref: r.ref(string(body[:size]))})
	return body[size:], nil
}
