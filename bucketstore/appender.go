package bucketstore

import "context"

// Appender stores samples of series by references: the hot path. [Direct] is
// one over any Store. All methods may be called concurrently.
type Appender interface {
	// Ref returns the reference of the series with this key, which it copies. To
	// ask again for the same series gives a reference that is as good.
	Ref(seriesKey []byte) Ref

	// Append stores samples. Once it has returned without an error they are
	// durable and every later read sees them; after an error each may be stored
	// or not, and to append it again is harmless. Where the store knows which
	// samples failed the error is a *SamplesError. Of two samples with the same
	// series and time the later one, in samples and between calls, is kept.
	// Append keeps no reference to samples.
	Append(ctx context.Context, samples []Sample) error
}

// A Ref stands for a series towards the Appender that returned it, and towards
// no other. It needs no release: the garbage collector frees it.
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
	// Value, if not nil, is the value in the form of cell.Append: a
	// histogram, or a float that says since when it has been counted.
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
}

// Error returns the text of Err.
func (e *SamplesError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *SamplesError) Unwrap() error { return e.Err }
