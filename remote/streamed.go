package remote

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	upstream "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// flushBytes is how many bytes of frames are gathered before they are sent.
// Until then an error can still be told.
const flushBytes = 128 << 10

// maxPooledFrame is the largest frame buffer that is kept for the next request.
const maxPooledFrame = 4 << 20

// frameBuffers is the memory of one streamed answer.
type frameBuffers struct {
	out    *bufio.Writer
	frame  []byte
	labels []prompb.Label
	chunks []prompb.Chunk
}

// streamed answers with frames, one for each series, in the order of the sets.
// Upstream's client takes each frame for a series of its own, so none is split.
// Chunks with start timestamps go only to clients that can read them.
func (h *readHandler) streamed(ctx context.Context, w http.ResponseWriter, starts bool, sets []storage.ChunkSeriesSet) (started bool, err error) {
	buf, ok := h.buffers.Get().(*frameBuffers)
	if !ok {
		buf = &frameBuffers{out: bufio.NewWriterSize(nil, flushBytes)}
	}
	defer h.releaseFrames(buf)

	w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
	sink := &frameSink{w: w, control: http.NewResponseController(w)}
	buf.out.Reset(sink)
	s := &streamer{
		frameBuffers: buf,
		maxBytes:     h.maxFrameBytes,
		starts:       starts,
		writer:       upstream.NewChunkedWriter(buf.out, noFlush{}),
	}
	for i, set := range sets {
		if err := s.addResult(ctx, int64(i), set); err != nil {
			return sink.bytes > 0, fmt.Errorf("query %d: %w", i, err)
		}
	}
	if err := buf.out.Flush(); err != nil {
		return true, err
	}
	h.metrics.series.WithLabelValues(responseStreamed).Add(float64(s.series))
	h.metrics.bytes.WithLabelValues(responseStreamed).Add(float64(sink.bytes))
	return true, nil
}

// releaseFrames keeps buf for the next answer.
func (h *readHandler) releaseFrames(buf *frameBuffers) {
	if cap(buf.frame) > maxPooledFrame {
		return
	}
	buf.out.Reset(nil)
	// What is not overwritten must not hold the chunks of this answer.
	clear(buf.labels[:cap(buf.labels)])
	clear(buf.chunks[:cap(buf.chunks)])
	h.buffers.Put(buf)
}

// frameSink sends what it is given at once, and counts it.
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

// noFlush is for a writer that is flushed by its owner.
type noFlush struct{}

// Flush implements http.Flusher.
func (noFlush) Flush() {}

// streamer encodes one streamed answer.
type streamer struct {
	*frameBuffers
	maxBytes int
	starts   bool // the client can read start timestamps
	writer   *upstream.ChunkedWriter
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

// addSeries writes the frame of one series.
func (s *streamer) addSeries(query int64, cs storage.ChunkSeries) error {
	s.labels = prompb.FromLabels(cs.Labels(), s.labels)
	if err := s.gather(cs); err != nil {
		return err
	}
	msg := prompb.ChunkedReadResponse{
		ChunkedSeries: []*prompb.ChunkedSeries{{Labels: s.labels, Chunks: s.chunks}},
		QueryIndex:    query,
	}
	size := msg.Size()
	if size > s.maxBytes {
		return s.limitError(cs)
	}
	s.frame = slices.Grow(s.frame[:0], size)[:size]
	if _, err := msg.MarshalToSizedBuffer(s.frame); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	s.series++
	_, err := s.writer.Write(s.frame)
	return err
}

// gather collects the chunks of a series, as long as they fit into a frame.
func (s *streamer) gather(cs storage.ChunkSeries) error {
	s.chunks = s.chunks[:0]
	s.iter = cs.Iterator(s.iter)
	for size := 0; s.iter.Next(); {
		metas := []chunks.Meta{s.iter.At()}
		if !s.starts && hasStarts(metas[0].Chunk) {
			var err error
			if metas, err = withoutStarts(metas[0]); err != nil {
				return fmt.Errorf("convert a chunk: %w", err)
			}
		}
		for _, meta := range metas {
			if size += len(meta.Chunk.Bytes()); size > s.maxBytes {
				return s.limitError(cs)
			}
			s.chunks = append(s.chunks, prompb.Chunk{
				MinTimeMs: meta.MinTime,
				MaxTimeMs: meta.MaxTime,
				Type:      prompb.Chunk_Encoding(meta.Chunk.Encoding()), // the same numbers
				Data:      meta.Chunk.Bytes(),
			})
		}
	}
	return s.iter.Err()
}

func (s *streamer) limitError(cs storage.ChunkSeries) error {
	return fmt.Errorf("%w: series %s does not fit into a frame of %d bytes, shorten the time range", engine.ErrLimit, series.Abbreviate(cs.Labels()), s.maxBytes)
}
