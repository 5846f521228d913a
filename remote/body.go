package remote

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/golang/snappy"
)

// maxSnappyRatio is more than snappy can compress: its densest element is
// three bytes for 64.
const maxSnappyRatio = 22

// maxPooledBytes is the largest buffer that is kept for the next request.
const maxPooledBytes = 4 << 20

// bodyReader reads compressed requests. It is safe for concurrent use.
type bodyReader struct {
	// limit bounds a body in bytes, before and after decompression.
	limit int
	pool  sync.Pool // of *bodyBuffers
}

// bodyBuffers is the memory of one request.
type bodyBuffers struct {
	compressed bytes.Buffer
	decoded    []byte
}

// read gives fn the decompressed body of r, which is valid only during the
// call. It waits for the body until deadline. The error is that of fn, or says
// what is wrong with the body.
func (b *bodyReader) read(w http.ResponseWriter, r *http.Request, deadline time.Time, fn func(body []byte) error) error {
	buf, ok := b.pool.Get().(*bodyBuffers)
	if !ok {
		buf = new(bodyBuffers)
	}
	defer b.release(buf)

	// A writer without deadlines, as in a test, has no slow clients either. The
	// deadline must not outlive the body: the server goes on reading, to notice
	// when the client hangs up.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(deadline)
	_, err := buf.compressed.ReadFrom(http.MaxBytesReader(w, r.Body, int64(b.limit)))
	_ = control.SetReadDeadline(time.Time{})
	if err != nil {
		return fmt.Errorf("read request body: %w", err)
	}
	if err := b.decompress(buf); err != nil {
		return err
	}
	return fn(buf.decoded)
}

// decompress checks what the block claims before it makes room for it.
func (b *bodyReader) decompress(buf *bodyBuffers) error {
	src := buf.compressed.Bytes()
	size, err := snappy.DecodedLen(src)
	switch {
	case err != nil:
		return badRequest("decompress request body: %w", err)
	case size > b.limit:
		return badRequest("request body of %d bytes after decompression, the limit is %d", size, b.limit)
	case size > maxSnappyRatio*len(src):
		return badRequest("decompress request body: %w: %d bytes cannot hold %d", snappy.ErrCorrupt, len(src), size)
	case size > cap(buf.decoded):
		buf.decoded = make([]byte, size)
	}
	buf.decoded = buf.decoded[:cap(buf.decoded)]
	if buf.decoded, err = snappy.Decode(buf.decoded, src); err != nil {
		return badRequest("decompress request body: %w", err)
	}
	return nil
}

func (b *bodyReader) release(buf *bodyBuffers) {
	if buf.compressed.Cap() > maxPooledBytes || cap(buf.decoded) > maxPooledBytes {
		return
	}
	buf.compressed.Reset()
	b.pool.Put(buf)
}
