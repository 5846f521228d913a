package chunk

import (
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/dense"
)

// A Splitter cuts samples of a window, in order of time, into the chunks that are stored: a run of
// floats into chunks of EncodingDense with up to MaxSamples, a run of other values as a Builder
// does. Only Seal must be set.
type Splitter struct {
	// Seal takes a chunk of samples from mint to maxt, in milliseconds and inclusive. Data are
	// valid during the call. After an error its samples stay in the Splitter.
	Seal func(encoding byte, mint, maxt int64, data []byte) error
	// times and floats are a run of floats, others a run of other values. One of both is empty.
	times  []int64
	floats []float64
	others Builder
	data   []byte
}

// AddFloats adds floats without start timestamps. It keeps neither slice.
func (s *Splitter) AddFloats(ts []int64, vs []float64) error {
	if err := s.flushOthers(); err != nil {
		return err
	}
	for len(ts) > 0 {
		if len(s.times) == MaxSamples {
			if err := s.flushFloats(); err != nil {
				return err
			}
		}
		n := min(len(ts), MaxSamples-len(s.times))
		s.times, s.floats = append(s.times, ts[:n]...), append(s.floats, vs[:n]...)
		ts, vs = ts[n:], vs[n:]
	}
	return nil
}

// Add adds a histogram, or a float with a start timestamp. It may keep what v refers to.
func (s *Splitter) Add(t int64, v cell.Value) error {
	if err := s.flushFloats(); err != nil {
		return err
	}
	return s.others.Append(t, v)
}

// First returns the time of the first sample that is not sealed, if there is one.
func (s *Splitter) First() (t int64, ok bool) {
	switch {
	case len(s.times) > 0:
		return s.times[0], true
	case len(s.others.Chunks) > 0:
		return s.others.Chunks[0].MinTime, true
	}
	return 0, false
}

// Flush seals all samples.
func (s *Splitter) Flush() error {
	if err := s.flushFloats(); err != nil {
		return err
	}
	return s.flushOthers()
}

// Reset drops all samples, and keeps the memory.
func (s *Splitter) Reset() {
	s.times, s.floats, s.others = s.times[:0], s.floats[:0], Builder{}
}

func (s *Splitter) flushFloats() error {
	n := len(s.times)
	if n == 0 {
		return nil
	}
	s.data = dense.Append(s.data[:0], s.times, s.floats)
	if err := s.Seal(EncodingDense, s.times[0], s.times[n-1], s.data); err != nil {
		return err
	}
	s.times, s.floats = s.times[:0], s.floats[:0]
	return nil
}

func (s *Splitter) flushOthers() error {
	if len(s.others.Chunks) == 0 {
		return nil
	}
	for _, c := range s.others.Chunks {
		if err := s.Seal(byte(c.Chunk.Encoding()), c.MinTime, c.MaxTime, c.Chunk.Bytes()); err != nil {
			return err
		}
	}
	s.others = Builder{}
	return nil
}
