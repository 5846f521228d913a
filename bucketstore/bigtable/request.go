package bigtable

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Memory for a request begins with minBuffer bytes, and is not kept if it has
// grown to more than maxBuffer: a row may be much larger than a batch.
const (
	minBuffer = 64 << 10
	maxBuffer = 2 * batchSize
)

// requestPool keeps the memory of requests. gRPC may still read a request whose
// call has ended early, so it is gRPC that gives the memory back, through
// mem.BufferPool. The zero value is ready for use.
type requestPool struct{ pool sync.Pool }

var _ mem.BufferPool = (*requestPool)(nil)

// Get implements mem.BufferPool.
func (p *requestPool) Get(length int) *[]byte {
	b := p.get()
	if cap(*b) < length {
		*b = make([]byte, 0, length)
	}
	*b = (*b)[:length]
	return b
}

// get returns an empty buffer.
func (p *requestPool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, minBuffer)
	return &b
}

// Put implements mem.BufferPool.
func (p *requestPool) Put(b *[]byte) {
	if cap(*b) <= maxBuffer {
		*b = (*b)[:0]
		p.pool.Put(b)
	}
}

// A codec moves messages that are bytes already: a mem.Buffer goes out as it is,
// an answer reads what comes in.
type codec struct{}

var _ encoding.CodecV2 = codec{}

// Name implements encoding.CodecV2. It stands in the content type: what goes
// over the wire is protobuf.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2. The reference is gRPC's to free.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	buf, ok := v.(mem.Buffer)
	if !ok {
		return nil, fmt.Errorf("cannot send a %T", v)
	}
	buf.Ref()
	return mem.BufferSlice{buf}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("cannot receive a %T", v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return a.parse(buf.ReadOnlyData())
}
