package eval

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// A FloatSeries is a storage.Series whose samples may be asked for all at once. Different series of a set may be read
// concurrently, which upstream's do not allow.
type FloatSeries interface {
	storage.Series
	// AppendFloats appends the samples: times in milliseconds, ascending, and as many
	// values. It returns false if not all samples are floats.
	AppendFloats(ts []int64, vs []float64) ([]int64, []float64, bool, error)
}

// passing is the key of a context, see Passing.
type passing struct{}

// Passing says whether a Select with this context is one of a part. Of its series nothing is used once finish has returned, which is
// called before the memory of those that were delivered is used again.
func Passing(ctx context.Context) (finish func(), ok bool) {
	finish, ok = ctx.Value(passing{}).(func())
	return finish, ok
}

// errUnknown says that a part met what it cannot evaluate.
var errUnknown = errors.New("samples that this part cannot evaluate")

// samples are those of one series, if all are floats: times in milliseconds, ascending,
// and values.
type samples struct {
	ts []int64
	vs []float64
	// numbers, unless nil, are how many samples there are up to each: some are left out.
	numbers []int32
	it      chunkenc.Iterator
}

// between returns how many samples lie after the first one of w, up to the last one.
func (s *samples) between(w window) int {
	if s.numbers == nil {
		return w.limit - 1 - w.first
	}
	return int(s.numbers[w.limit-1] - s.numbers[w.first])
}

// read replaces the samples by those of a series. It returns false if not all of them are
// floats.
func (s *samples) read(from storage.Series) (ok bool, err error) {
	s.ts, s.vs = s.ts[:0], s.vs[:0]
	if floats, is := from.(FloatSeries); is {
		s.ts, s.vs, ok, err = floats.AppendFloats(s.ts, s.vs)
		return ok, err
	}
	s.it = from.Iterator(s.it)
	for {
		switch s.it.Next() {
		case chunkenc.ValFloat:
			t, v := s.it.At()
			s.ts, s.vs = append(s.ts, t), append(s.vs, v)
		case chunkenc.ValNone:
			return true, s.it.Err()
		default:
			return false, nil
		}
	}
}

// dropStale removes staleness markers, which are no samples to functions of a range.
func (s *samples) dropStale() {
	kept := 0
	for i, v := range s.vs {
		if isStale(v) {
			continue
		}
		s.ts[kept], s.vs[kept] = s.ts[i], v
		kept++
	}
	s.ts, s.vs = s.ts[:kept], s.vs[:kept]
}

func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// A window is the positions of the samples in a range of time (after, to], in
// milliseconds. Its zero value lies before all samples.
type window struct{ first, limit int }

// move moves w to a later range.
func (w *window) move(ts []int64, after, to int64) {
	for w.limit < len(ts) && ts[w.limit] <= to {
		w.limit++
	}
	for w.first < w.limit && ts[w.first] <= after {
		w.first++
	}
}
