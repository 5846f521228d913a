package read

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series"
)

// flushBytes is how many bytes of frames are buffered before they are sent. Until
// then an error can still be answered.
const flushBytes = 128 << 10

// maxPooledFrame is the largest frame buffer that is kept for the next request.
const maxPooledFrame = 4 << 20

// frameBuffers is the memory of one streamed answer.
type frameBuffers struct {
	out    []byte // frames that are not yet sent
	chunks []chunks.Meta
}

// streamed answers with frames, one for each series, in the order of the sets.
// Upstream's client takes each frame for a series of its own, so none is split.
// Chunks with start timestamps go only to clients that can read them.
func (h *Handler) streamed(ctx context.Context, w http.ResponseWriter, starts bool, sets []storage.ChunkSeriesSet) (started bool, err error) {
	buf, ok := h.buffers.Get().(*frameBuffers)
	if !ok {
		buf = &frameBuffers{out: make([]byte, 0, flushBytes)}
	}
	defer h.releaseFrames(buf)

	w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	sink := &frameSink{w: w, control: http.NewResponseController(w)}
	s := &streamer{frameBuffers: buf, sink: sink, maxBytes: h.maxFrameBytes, starts: starts}
	for i, set := range sets {
		if err := s.addResult(ctx, int64(i), set); err != nil {
			return sink.bytes > 0, fmt.Errorf("query %d: %w", i, err)
		}
	}
	if err := s.flush(); err != nil {
		return true, err
	}
	h.metrics.series.WithLabelValues(responseStreamed).Add(float64(s.series))
	h.metrics.bytes.WithLabelValues(responseStreamed).Add(float64(sink.bytes))
	return true, nil
}

// releaseFrames keeps buf for the next answer.
func (h *Handler) releaseFrames(buf *frameBuffers) {
	if cap(buf.out) > maxPooledFrame {
		return
	}
	buf.out = buf.out[:0]
	clear(buf.chunks[:cap(buf.chunks)]) // it must not hold the chunks of this answer
	h.buffers.Put(buf)
}

// frameSink sends bytes at once, and counts them.
type frameSink struct {
	w       http.ResponseWriter
	control *http.ResponseController
	bytes   int
}

// Write implements io.Writer.
func (s *frameSink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	n, err := s.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.control.Flush()
}

// streamer encodes one streamed answer.
type streamer struct {
	*frameBuffers
	sink     *frameSink
	maxBytes int
	starts   bool // the client can read start timestamps
	series   int
	iter     chunks.Iterator
}

// addResult writes a frame for each series of set.
func (s *streamer) addResult(ctx context.Context, query int64, set storage.ChunkSeriesSet) error {
	for set.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.addSeries(query, set.At()); err != nil {
			return err
		}
	}
	return set.Err()
}

// addSeries adds the frame of one series.
func (s *streamer) addSeries(query int64, cs storage.ChunkSeries) error {
	if err := s.gatherChunks(cs); err != nil {
		return err
	}
	f := frame{query: query, labels: cs.Labels(), chunks: s.chunks}
	f.measure()
	if f.size > s.maxBytes {
		return s.limitError(cs)
	}
	if len(s.out)+f.size+maxFrameHead > flushBytes {
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.out = f.append(s.out)
	s.series++
	return nil
}

// flush sends the frames that are buffered.
func (s *streamer) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.sink.Write(s.out)
	s.out = s.out[:0]
	return err
}

// gatherChunks collects the chunks of a series, if they fit into a frame.
func (s *streamer) gatherChunks(cs storage.ChunkSeries) error {
	s.chunks = s.chunks[:0]
	s.iter = cs.Iterator(s.iter)
	for size := 0; s.iter.Next(); {
		meta := s.iter.At()
		first := len(s.chunks)
		if s.starts || !hasStarts(meta.Chunk) {
			s.chunks = append(s.chunks, meta)
		} else {
			metas, err := withoutStarts(meta)
			if err != nil {
				return fmt.Errorf("convert a chunk: %w", err)
			}
			s.chunks = append(s.chunks, metas...)
		}
		for _, meta := range s.chunks[first:] {
			if size += len(meta.Chunk.Bytes()); size > s.maxBytes {
				return s.limitError(cs)
			}
		}
	}
	return s.iter.Err()
}

func (s *streamer) limitError(cs storage.ChunkSeries) error {
	return fmt.Errorf("%w: series %s does not fit into a frame of %d bytes, shorten the time range", reader.ErrLimit, series.Abbreviate(cs.Labels()), s.maxBytes)
}
