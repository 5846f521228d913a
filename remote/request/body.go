package request

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/golang/snappy"
)

// maxSnappyRatio is more than snappy can compress: its densest element is
// three bytes for 64.
const maxSnappyRatio = 22

// MaxPooledBytes is the largest buffer that is kept for the next request.
const MaxPooledBytes = 4 << 20

// smallBodyBytes is how much of a body, as sent, is read before it needs a
// reservation of BodyReader.Large. Nearly all bodies are smaller, so a client that
// announces much and sends little does not delay them.
const smallBodyBytes = 1 << 20

// BodyReader reads compressed requests. It is safe for concurrent use.
type BodyReader struct {
	// Limit bounds a body in bytes, before and after decompression.
	Limit int
	// Large bounds the bytes of all bodies over smallBodyBytes, as sent. It may be
	// nil.
	Large *ByteGate
	pool  sync.Pool // of *bodyBuffers
}

// bodyBuffers is the memory of one request.
type bodyBuffers struct {
	compressed bytes.Buffer
	decoded    []byte
}

// Read gives fn the decompressed body of r, which is valid only during the
// call. It waits for the body until the deadline of ctx. decoded, which may be
// nil, reserves the size of the body before memory is allocated for it; the
// caller releases it. The error is that of fn, or one of the body: its Status is
// 400, 413 or 503.
func (b *BodyReader) Read(ctx context.Context, w http.ResponseWriter, r *http.Request, decoded *Reservation, fn func(body []byte) error) error {
	buf, ok := b.pool.Get().(*bodyBuffers)
	if !ok {
		buf = new(bodyBuffers)
	}
	defer b.release(buf)
	if err := b.load(ctx, w, r, buf, decoded); err != nil {
		return err
	}
	return fn(buf.decoded)
}

// load receives and decompresses the body of r. A large one is in memory twice
// only during the call.
func (b *BodyReader) load(ctx context.Context, w http.ResponseWriter, r *http.Request, buf *bodyBuffers, decoded *Reservation) error {
	var large *Reservation
	if b.Large != nil {
		large = &Reservation{Gate: b.Large}
	}
	defer large.Release()
	if err := b.receive(ctx, w, r, buf, large); err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	if err := b.decompress(ctx, buf, decoded); err != nil {
		return err
	}
	if buf.compressed.Cap() > MaxPooledBytes {
		buf.compressed = bytes.Buffer{}
	}
	return nil
}

// receive reads the body of r as it was sent.
func (b *BodyReader) receive(ctx context.Context, w http.ResponseWriter, r *http.Request, buf *bodyBuffers, large *Reservation) error {
	LimitBody(ctx, w, r)
	body := http.MaxBytesReader(w, r.Body, int64(b.Limit))
	n, err := buf.compressed.ReadFrom(io.LimitReader(body, smallBodyBytes))
	if err != nil || n < smallBodyBytes {
		return err
	}
	if err := large.Take(ctx, b.announced(r)); err != nil {
		return err
	}
	_, err = buf.compressed.ReadFrom(body)
	return err
}

// announced is how many bytes the body of r has at most, as sent.
func (b *BodyReader) announced(r *http.Request) int {
	if r.ContentLength < 0 || r.ContentLength > int64(b.Limit) {
		return b.Limit
	}
	return int(r.ContentLength)
}

// decompress checks the size that the block announces before it allocates memory
// for it.
func (b *BodyReader) decompress(ctx context.Context, buf *bodyBuffers, decoded *Reservation) error {
	src := buf.compressed.Bytes()
	size, err := snappy.DecodedLen(src)
	switch {
	case err != nil:
		return BadRequest("decompress request body: %w", err)
	case size > b.Limit:
		return BadRequest("request body of %d bytes after decompression, the limit is %d", size, b.Limit)
	case size > maxSnappyRatio*len(src):
		return BadRequest("decompress request body: %w: %d bytes cannot hold %d", snappy.ErrCorrupt, len(src), size)
	}
	if err := decoded.Take(ctx, size); err != nil {
		return err
	}
	if size > cap(buf.decoded) {
		buf.decoded = make([]byte, size)
	}
	buf.decoded = buf.decoded[:cap(buf.decoded)]
	if buf.decoded, err = snappy.Decode(buf.decoded, src); err != nil {
		return BadRequest("decompress request body: %w", err)
	}
	return nil
}

func (b *BodyReader) release(buf *bodyBuffers) {
	if buf.compressed.Cap() > MaxPooledBytes || cap(buf.decoded) > MaxPooledBytes {
		return
	}
	buf.compressed.Reset()
	b.pool.Put(buf)
}
