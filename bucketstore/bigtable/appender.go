package bigtable

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// An Appender is a [bucketstore.Appender] that makes every sample a raw cell of
// METRIC before it answers. It sends the same row mutations as
// [bucketstore.Direct] would over the store, but encodes them straight from the
// samples. It holds no samples, and may be used by several goroutines.
type Appender struct {
	store   *Store
	table   *table
	schema  series.Schema
	now     func() time.Time
	rawFrom bucketstore.RawFrom
	// seed is that of the hashes in references.
	seed     maphash.Seed
	encoders sync.Pool
}

var _ bucketstore.Appender = (*Appender)(nil)

// NewAppender returns an Appender over s. now is the clock that decides which
// family a sample goes to, see series.Arrival. It is asked once for up to
// maxAppend samples, and rawFrom then; nil is right where nothing is sealed. The
// error is bucketstore.ErrTable if s lacks METRIC or a family of it.
func (s *Store) NewAppender(schema series.Schema, now func() time.Time, rawFrom bucketstore.RawFrom) (*Appender, error) {
	t, err := s.table(bucketstore.Metric)
	if err != nil {
		return nil, err
	}
	for _, family := range []string{series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3, series.FamilyLate} {
		if err := t.checkFamily(family); err != nil {
			return nil, err
		}
	}
	return &Appender{store: s, table: t, schema: schema, now: now, rawFrom: rawFrom, seed: maphash.MakeSeed()}, nil
}

// ref is a series key and its hash.
type ref struct {
	key  []byte
	hash uint32
	// split is where in key the base of a row key goes.
	split uint32
}

// SeriesKey implements bucketstore.Ref.
func (r *ref) SeriesKey() []byte { return r.key }

// Ref implements bucketstore.Appender.
func (a *Appender) Ref(seriesKey []byte) bucketstore.Ref {
	return &ref{
		key:   slices.Clone(seriesKey),
		hash:  uint32(maphash.Bytes(a.seed, seriesKey)),
		split: uint32(a.schema.ResourceOffset(seriesKey)),
	}
}

const (
	// maxAppend is how many samples are on their way at once: as many as one row
	// may take in one request.
	maxAppend = maxOps
	// maxWrite is how long a raw cell may be on its way after its family was
	// chosen. The sealer relies on it.
	maxWrite = time.Minute
)

// Append implements bucketstore.Appender. Errors are as those of Store.Apply; in
// addition a request ends a minute of the wall clock after the time of its
// samples' arrival was taken, however often it is sent.
func (a *Appender) Append(ctx context.Context, samples []bucketstore.Sample) error {
	var failed failures
	for len(samples) > 0 {
		n := min(maxAppend, len(samples))
		if err := a.append(ctx, samples[:n], &failed); err != nil {
			return fmt.Errorf("append samples: %w", err)
		}
		failed.start += n
		samples = samples[n:]
	}
	return failed.err()
}

// append stores up to maxAppend samples and adds those that failed to failed.
func (a *Appender) append(ctx context.Context, samples []bucketstore.Sample, failed *failures) error {
	// Without its monotonic part the deadline also passes while a machine is
	// asleep.
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(maxWrite).Round(0))
	defer cancel()
	e, ok := a.encoders.Get().(*encoder)
	if !ok {
		e = new(encoder)
	}
	defer a.giveBack(e)
	e.begin(samples, a.rawFrom.Arrival(a.now()))

	fail := func(row int, err error) {
		e.each(&e.groups[row], func(i int) { failed.add(i, err) })
	}
	f := a.store.newFlight(ctx, bucketstore.Metric, a.table)
	for i := range e.groups {
		if err := e.append(f, i); err != nil {
			fail(i, err)
		}
	}
	return f.finish(fail)
}

// giveBack keeps the memory of an encoder, but nothing that it refers to.
func (a *Appender) giveBack(e *encoder) {
	e.samples = nil
	if cap(e.cells) > maxBuffer {
		e.cells = nil
	}
	a.encoders.Put(e)
}

// failures gathers what failed of an Append.
type failures struct {
	// start is the position of the samples that are stored now.
	start     int
	positions []int
	first     error
}

// add adds the error of the sample at i of those that are stored now.
func (f *failures) add(i int, err error) {
	f.positions = append(f.positions, f.start+i)
	if f.first == nil {
		f.first = err
	}
}

// err returns a *bucketstore.SamplesError, or nil if nothing failed.
func (f *failures) err() error {
	if f.first == nil {
		return nil
	}
	slices.Sort(f.positions)
	return &bucketstore.SamplesError{
		Failed: f.positions,
		Err:    fmt.Errorf("append samples: %d not stored, for one of them: %w", len(f.positions), f.first),
	}
}

// An encoder appends the samples of a call to requests.
type encoder struct {
	arrival series.Arrival
	grouping
	// cells are those of the row that is appended.
	cells []byte
	// base is what row keys have of the bucket at baseTime. It is empty at first.
	base     []byte
	baseTime int64
	// float is the cell of a float at floatTime, without the value. It is empty at
	// first.
	float     []byte
	floatTime int64
}

// begin makes e ready for samples that arrived together.
func (e *encoder) begin(samples []bucketstore.Sample, arrival series.Arrival) {
	e.arrival, e.float = arrival, e.float[:0]
	e.gather(samples)
}

// append appends group i to a batch of f, or returns why it must not be sent.
func (e *encoder) append(f *flight, i int) error {
	row := &e.groups[i]
	r := e.ref(row)
	base := e.baseOf(row)
	key := len(r.key) + series.BaseSize
	if key > maxKeySize {
		return checkKey(appendKey(nil, r, base))
	}
	columns := e.columns(row)
	if err := e.encode(columns); err != nil {
		return fmt.Errorf("row %.80q: %w", appendKey(nil, r, base), err)
	}
	b := f.batch(key+rowOverhead+len(e.cells), len(columns))
	data := appendEntry(*b.data, key, len(e.cells))
	*b.data = append(appendKey(data, r, base), e.cells...)
	b.added(i, len(columns))
	return nil
}

// baseOf returns what the key of a row has beside its series key. Most rows of a
// call lie in one bucket.
func (e *encoder) baseOf(row *group) []byte {
	if t := row.base(); len(e.base) == 0 || t != e.baseTime {
		e.base, e.baseTime = series.AppendBase(e.base[:0], t), t
	}
	return e.base
}

// appendKey appends the row key of a series, as series.AppendRowKey does.
func appendKey(dst []byte, r *ref, base []byte) []byte {
	dst = append(append(dst, r.key[:r.split]...), base...)
	return append(dst, r.key[r.split:]...)
}

// encode makes cells of the samples at these positions, which are those of a row.
func (e *encoder) encode(positions []int32) error {
	e.cells = e.cells[:0]
	for _, i := range positions {
		s := &e.samples[i]
		if s.Value == nil {
			e.cells = e.appendFloat(e.cells, s)
			continue
		}
		if len(s.Value) > maxValueSize {
			return fmt.Errorf("sample at %d: value has %d bytes, want at most %d", s.T, len(s.Value), maxValueSize)
		}
		e.cells = append(e.appendCell(e.cells, s.T, len(s.Value)), s.Value...)
		if len(e.cells) > maxMutationSize {
			return fmt.Errorf("mutation of more than %d bytes", maxMutationSize)
		}
	}
	return nil
}

// floatSize is the size of the value of a float.
const floatSize = 8

// appendFloat appends the cell of a float. Those of one time, which is what a
// scrape gives, differ in the value only.
func (e *encoder) appendFloat(dst []byte, s *bucketstore.Sample) []byte {
	if len(e.float) == 0 || s.T != e.floatTime {
		e.float, e.floatTime = e.appendCell(e.float[:0], s.T, floatSize), s.T
	}
	return series.AppendFloat(append(dst, e.float...), s.V)
}

// appendCell appends the cell of a sample at t, but for its value, of the given
// size.
func (e *encoder) appendCell(dst []byte, t int64, value int) []byte {
	family, cellTime := e.arrival.Cell(t)
	_, delta := series.Split(t)
	dst = appendMutation(dst, mutationSetCell, sizeSetCell(family, series.QualifierSize, cellTime, value))
	dst = appendBytes(dst, setFamily, family)
	dst = series.AppendQualifier(appendLen(dst, setQualifier, series.QualifierSize), delta)
	dst = appendNumber(dst, setTime, cellTime*1000)
	if value == 0 {
		return dst
	}
	return appendLen(dst, setValue, value)
}
