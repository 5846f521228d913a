package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/series/rollup"
)

// Rows are the rows of an adapter that serves, or of an engine in this process, as a Source. What it has are stored cells, which only a Target of an adapter takes.
type Rows struct {
	sel Selection
	// from is the time before which samples, or rollups of a resolution, are not read, in milliseconds.
	from [rollup.NumResolutions]int64
	// read reads the series of a query, of current samples if that is asked for.
	read  func(ctx context.Context, q reader.StoredQuery, current bool) (*rowSet, error)
	close func()
}

// NewRows returns the rows of the adapter at a URL such as http://localhost:9201. Rollups of a resolution are read from a time on, in milliseconds, and
// in place of samples before the time of these, of units that are Rolled.
func NewRows(s Server, sel Selection, from [rollup.NumResolutions]int64) (*Rows, error) {
	client, err := s.Client(rowsTimeout)
	if err != nil {
		return nil, err
	}
	base := strings.TrimSuffix(s.URL, "/")
	read := func(ctx context.Context, q reader.StoredQuery, current bool) (*rowSet, error) {
		return readRows(ctx, client, base, q, current)
	}
	return &Rows{sel, from, read, client.CloseIdleConnections}, nil
}

// NewEngineRows is NewRows of an engine in this process.
func NewEngineRows(e RowsEngine, sel Selection, from [rollup.NumResolutions]int64) *Rows {
	read := func(ctx context.Context, q reader.StoredQuery, current bool) (*rowSet, error) {
		next, stop := iter.Pull2(func(yield func(reader.Stored, error) bool) {
			err := storedIn(ctx, e, q, current, func(s reader.Stored) error {
				if !yield(s, nil) {
					return errStopped
				}
				return nil
			})
			if err != nil && !errors.Is(err, errStopped) {
				yield(reader.Stored{}, err)
			}
		})
		return &rowSet{next: func() (*listSeries, error) {
			s, err, ok := next()
			if !ok {
				return nil, io.EOF
			}
			return seriesOfStored(s), err
		}, close: func() error { stop(); return nil }}, nil
	}
	return &Rows{sel, from, read, func() {}}
}

// errStopped says that no more series are wanted.
var errStopped = errors.New("no more series are wanted")

// Units implements Source.
func (r *Rows) Units(_ context.Context, rolled int64) ([]Unit, []error, error) {
	return unitsOf(r.sel, grid{rolled, UnitSpan})
}

// Parallel implements Source.
func (*Rows) Parallel() bool { return true }

// Close implements Source.
func (r *Rows) Close() error { r.close(); return nil }

// Open implements Source.
func (r *Rows) Open(ctx context.Context, u Unit) (*Reading, error) {
	return r.open(ctx, reader.StoredQuery{Start: u.Start, Limit: u.Limit, Rollups: u.Rolled && u.Start < r.from[rollup.Raw]}, false)
}

// CopyCurrent writes the current samples in [start, limit), in milliseconds, to a target, and returns how many there are.
func (r *Rows) CopyCurrent(ctx context.Context, to Target, start, limit int64) (n int64, err error) {
	from, err := r.open(ctx, reader.StoredQuery{Start: start, Limit: limit}, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	w, err := to.NewWriter(ctx, Unit{Start: start, Limit: limit})
	if err != nil {
		return 0, err
	}
	for ; from.Next(); n++ {
		if err := w.Write(ctx, from.At()); err != nil {
			return n, err
		}
	}
	return n, errors.Join(from.Err(), w.Flush(ctx))
}

func (r *Rows) open(ctx context.Context, q reader.StoredQuery, current bool) (*Reading, error) {
	if q.Selectors = r.sel.Matchers; len(q.Selectors) == 0 {
		q.Selectors = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}}
	}
	ctx, cancel := context.WithCancel(ctx)
	set, err := r.read(ctx, q, current)
	if err != nil {
		cancel()
		if !errors.As(err, new(*finalError)) {
			err = &Temporary{err}
		}
		return nil, err
	}
	if q.Rollups {
		set.keep = r.isKept
	}
	return &Reading{ChunkSeriesSet: temporarySet{set}, Close: func() error {
		defer cancel()
		return set.close()
	}}, nil
}

// isKept says whether a rollup is of a resolution and time that are read.
func (r *Rows) isKept(m chunks.Meta) bool {
	return rollup.DayOf(m.MinTime+1) >= r.from[rollup.ResolutionOf(m.Chunk.(*storedChunk).cell.Family)]
}

// readRows asks an adapter.
func readRows(ctx context.Context, client *http.Client, base string, q reader.StoredQuery, current bool) (*rowSet, error) {
	form := url.Values{"start": {strconv.FormatInt(q.Start, 10)}, "limit": {strconv.FormatInt(q.Limit, 10)}, "of": {ofSamples}}
	switch {
	case current:
		form.Set("of", ofCurrent)
	case q.Rollups:
		form.Set("of", ofRollups)
	}
	for _, matchers := range q.Selectors {
		form.Add("match[]", reader.SelectorName(matchers))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+RowsPath, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorText)) // what of it came
		err := fmt.Errorf("%s: %s: %s", req.URL.Redacted(), resp.Status, strings.TrimSpace(string(text)))
		switch {
		case resp.StatusCode == http.StatusNotFound:
			err = &finalError{fmt.Errorf("%s: %s: it is no adapter of this version", req.URL.Redacted(), resp.Status)}
		case resp.StatusCode < http.StatusInternalServerError:
			err = &finalError{err}
		}
		return nil, err
	}
	frames := remote.NewChunkedReader(resp.Body, maxFrameBytes, nil)
	return &rowSet{close: resp.Body.Close, next: func() (*listSeries, error) {
		var frame prompb.ChunkedReadResponse
		if err := frames.NextProto(&frame); err != nil {
			return nil, err
		}
		if len(frame.ChunkedSeries) != 1 {
			return nil, fmt.Errorf("a frame of %d series", len(frame.ChunkedSeries))
		}
		return seriesOf(frame.ChunkedSeries[0])
	}}, nil
}

// A finalError is an answer that will be the same another time.
type finalError struct{ error }

// maxErrorText bounds what is shown of an answer that is an error, in bytes.
const maxErrorText = 4 << 10

// A rowSet is a set of series that are made one after the other.
type rowSet struct {
	// next returns the next one, or io.EOF.
	next  func() (*listSeries, error)
	close func() error
	// keep, if set, says which chunks there are.
	keep func(chunks.Meta) bool
	at   *listSeries
	err  error
}

// Next implements storage.ChunkSeriesSet.
func (s *rowSet) Next() bool {
	for s.err == nil {
		if s.at, s.err = s.next(); s.err != nil {
			break
		}
		if s.keep != nil {
			s.at.chunks = slices.DeleteFunc(s.at.chunks, func(m chunks.Meta) bool { return !s.keep(m) })
		}
		if len(s.at.chunks) > 0 {
			return true
		}
	}
	return false
}

// At implements storage.ChunkSeriesSet.
func (s *rowSet) At() storage.ChunkSeries { return s.at }

// Err implements storage.ChunkSeriesSet.
func (s *rowSet) Err() error {
	if errors.Is(s.err, io.EOF) && !errors.Is(s.err, io.ErrUnexpectedEOF) {
		return nil
	}
	return s.err
}

// Warnings implements storage.ChunkSeriesSet.
func (*rowSet) Warnings() annotations.Annotations { return nil }

// Close releases what the set holds.
func (s *rowSet) Close() error { return s.close() }
