package bucketstore

import "context"

// Appender stores samples of series by references: the hot path. [Direct] is
// one over any Store. All methods may be called concurrently.
type Appender interface {
	// Ref returns the reference of the series with this key, which it copies. All
	// references of one series are equally good.
	Ref(seriesKey []byte) Ref

	// Append stores samples. After it has returned without an error they are durable and
	// every later read sees them. After an error each sample may be stored or not, and to
	// append it again is harmless. Where the store says which samples failed, the error is
	// a *SamplesError.
	//
	// Of two samples with the same series and time the later one, in samples and between
	// calls, is kept. Append keeps no reference to samples.
	Append(ctx context.Context, samples []Sample) error
}

// A Ref is the reference of a series. Only the Appender that returned it takes it. It needs
// no release: the garbage collector frees it.
type Ref interface {
	// SeriesKey returns the key that the reference was made of. The caller must
	// not change it.
	SeriesKey() []byte
}

// A Sample is a value at a time in milliseconds, in [0, series.MaxTime].
type Sample struct {
	Ref Ref
	T   int64
	// V is the value, unless Value is set.
	V float64
	// Value, if not nil, is the value in the form of cell.Append: a histogram, or a float
	// with a start timestamp.
	Value []byte
}

// A SamplesError says which samples of an Append were not confirmed. All others
// are durable.
type SamplesError struct {
	// Failed holds positions in the samples given to Append, ascending, never
	// empty.
	Failed []int
	// Err is the error of one of them.
	Err error
	// Refused has the errors of those of Failed whose row the store refuses alone, while it
	// takes others: they can never be stored. It may be nil.
	Refused map[int]error
}

// Refuse adds the error of a sample to Refused.
func (e *SamplesError) Refuse(position int, err error) {
	if e.Refused == nil {
		e.Refused = make(map[int]error)
	}
	e.Refused[position] = err
}

// Error returns the text of Err.
func (e *SamplesError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *SamplesError) Unwrap() error { return e.Err }
