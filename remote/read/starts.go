package read

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// startsSince is the version of Prometheus whose remote read has all encodings
// with start timestamps: those of histograms came last.
const (
	startsSinceMajor = 3
	startsSinceMinor = 14
)

// readsStarts returns whether a client can read chunks with start timestamps. An
// older client fails over the whole answer, and the protocol does not negotiate
// them, so the User-Agent decides: Prometheus, of a version that can.
func readsStarts(h http.Header) bool {
	version, ok := strings.CutPrefix(h.Get("User-Agent"), "Prometheus/")
	if !ok {
		return false
	}
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return false
	}
	return major > startsSinceMajor || (major == startsSinceMajor && minor >= startsSinceMinor)
}

// hasStarts returns whether the encoding of c has start timestamps.
func hasStarts(c chunkenc.Chunk) bool {
	switch c.Encoding() {
	case chunkenc.EncXOR, chunkenc.EncHistogram, chunkenc.EncFloatHistogram:
		return false
	}
	return true
}

// withoutStarts returns the samples of a chunk in the encoding that has no start
// timestamps, as a rule in one chunk.
func withoutStarts(meta chunks.Meta) ([]chunks.Meta, error) {
	var converted []chunks.Meta
	var app chunkenc.Appender
	it := meta.Chunk.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		t := it.AtT()
		first := len(converted) == 0
		if first {
			chunk, err := kind.NewChunk(false, false)
			if err != nil {
				return nil, err
			}
			if app, err = chunk.Appender(); err != nil {
				return nil, err
			}
			converted = append(converted, chunks.Meta{Chunk: chunk, MinTime: t})
		}
		chunk, recoded, next, err := appendValue(app, kind, it, func(hint histogram.CounterResetHint) histogram.CounterResetHint {
			if first {
				return firstHint(meta.Chunk, hint)
			}
			return hint
		})
		switch last := &converted[len(converted)-1]; {
		case err != nil:
			return nil, err
		case chunk != nil && recoded:
			last.Chunk = chunk
		case chunk != nil:
			converted = append(converted, chunks.Meta{Chunk: chunk, MinTime: t})
		}
		app = next
		converted[len(converted)-1].MaxTime = t
	}
	return converted, it.Err()
}

// appendValue appends the current value of it. It returns what AppendHistogram of
// chunkenc.Appender returns.
func appendValue(app chunkenc.Appender, kind chunkenc.ValueType, it chunkenc.Iterator, hint func(histogram.CounterResetHint) histogram.CounterResetHint) (chunk chunkenc.Chunk, recoded bool, next chunkenc.Appender, err error) {
	switch kind {
	case chunkenc.ValHistogram:
		t, h := it.AtHistogram(nil)
		h.CounterResetHint = hint(h.CounterResetHint)
		return app.AppendHistogram(nil, 0, t, h, false)
	case chunkenc.ValFloatHistogram:
		t, h := it.AtFloatHistogram(nil)
		h.CounterResetHint = hint(h.CounterResetHint)
		return app.AppendFloatHistogram(nil, 0, t, h, false)
	}
	t, v := it.At()
	app.Append(0, t, v)
	return nil, false, app, nil
}
