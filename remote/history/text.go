package history

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/fileutil"

	"github.com/promtable/promtable/series/chunk"
)

const (
	// runSamples is about how many samples of a text are in memory at once, in 16 bytes each.
	runSamples = 5_000_000
	// parsedAtOnce is how many lines are parsed before the context is asked.
	parsedAtOnce = 5000
)

// Text is a text of lines with timestamps, or such a text compressed by gzip or zstd. It is read once for its times, and once for each 5 million
// samples. Samples of a series may come in any order; of several at one time the last one counts.
type Text struct {
	// each calls a function for each sample of a text. An error names the line.
	each eachFunc
	// path names the text in errors.
	path   string
	sel    Selection
	logger log.Logger
	text   *fileutil.MmapFile
	// temporary is a copy of a text that is compressed or no file, or empty.
	temporary string
	// perUnit are how many samples begin in a unit, by its start, runs the units whose samples are in memory together.
	perUnit map[int64]int64
	runs    []Unit
	// loaded are the series of the run, sorted by their labels. run is -1 if there is none yet.
	loaded []*textSeries
	run    int
}

// A textSample is a sample of a text. It is valid during a call.
type textSample interface {
	// Key returns what names the series. Several keys may name one.
	Key() []byte
	Labels(*labels.Labels)
}

// An eachFunc calls fn for each sample of a text, in order. An error names the line.
type eachFunc func(ctx context.Context, text []byte, fn func(t int64, v float64, s textSample) error) error

// newText returns the text in a file, or that of in if path is "-". logger takes what of the text is there twice.
func newText(each eachFunc, path string, in io.Reader, sel Selection, logger log.Logger) (o *Text, err error) {
	o = &Text{each: each, path: path, sel: sel, logger: logger, perUnit: make(map[int64]int64), run: -1}
	if path == "-" {
		o.path = "the standard input"
	}
	if err = o.open(path, in); err != nil {
		return o, errors.Join(fmt.Errorf("%s: %w", o.path, err), o.Close())
	}
	return o, nil
}

// open maps the text into memory.
func (o *Text) open(path string, in io.Reader) error {
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	plain := bufio.NewReaderSize(in, 1<<20)
	unpacked, err := unpack(plain)
	if err != nil {
		return err
	}
	if path == "-" || unpacked != plain {
		if path, err = o.copy(unpacked); err != nil {
			return err
		}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Size() == 0:
		return errors.New("it is empty")
	}
	o.text, err = fileutil.OpenMmapFile(path)
	return err
}

// unpack returns what decompresses a text, or the text itself if it is not compressed.
func unpack(text *bufio.Reader) (io.Reader, error) {
	magic, err := text.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(text)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstd.NewReader(text, zstd.WithDecoderConcurrency(1))
	case errors.Is(err, io.EOF):
		err = nil
	}
	return text, err
}

// copy writes a text to a temporary file, and returns its path.
func (o *Text) copy(text io.Reader) (path string, err error) {
	f, err := os.CreateTemp("", "promtable-import-")
	if err != nil {
		return "", err
	}
	o.temporary = f.Name()
	_, err = io.Copy(f, text)
	return o.temporary, errors.Join(err, f.Close())
}

// Parallel implements Source.
func (*Text) Parallel() bool { return false }

// Close implements Source.
func (o *Text) Close() (err error) {
	if o.text != nil {
		err = o.text.Close()
	}
	if o.temporary != "" {
		err = errors.Join(err, os.Remove(o.temporary))
	}
	return err
}

// Units implements Source. It parses all of the text.
func (o *Text) Units(ctx context.Context, rolled int64) (units []Unit, _ []error, err error) {
	g := grid{rolled, UnitSpan}
	err = o.samples(ctx, func(t int64, _ float64, _ textSample) error {
		start, _ := g.at(t)
		o.perUnit[start]++
		return nil
	})
	if err == nil && len(o.perUnit) == 0 {
		err = fmt.Errorf("%s has no samples", o.path)
	}
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(o.text.Bytes())
	for _, start := range slices.Sorted(maps.Keys(o.perUnit)) {
		n := o.perUnit[start]
		_, limit := g.at(start)
		if last := len(o.runs) - 1; last >= 0 && o.runs[last].Samples+n <= runSamples {
			o.runs[last].Limit, o.runs[last].Samples = limit, o.runs[last].Samples+n
		} else {
			o.runs = append(o.runs, Unit{Start: start, Limit: limit, Samples: n})
		}
		if u, ok := g.unit(start, n, o.sel, string(sum[:])); ok {
			units = append(units, u)
		}
	}
	return units, nil, nil
}

// samples calls fn for each sample.
func (o *Text) samples(ctx context.Context, fn func(t int64, v float64, s textSample) error) error {
	err := o.each(ctx, o.text.Bytes(), fn)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s, %w", o.path, err)
	}
	return err
}

// Open implements Source. One unit may be open at a time.
func (o *Text) Open(ctx context.Context, u Unit) (*Reading, error) {
	run := slices.IndexFunc(o.runs, func(r Unit) bool { return r.Start <= u.Start && u.Limit <= r.Limit })
	if run != o.run {
		if err := o.load(ctx, run); err != nil {
			return nil, err
		}
	}
	return &Reading{ChunkSeriesSet: &textSet{series: o.loaded, unit: u, at: -1}, Close: func() error { return nil }}, nil
}

// load replaces the samples in memory by those of a run.
func (o *Text) load(ctx context.Context, run int) error {
	o.loaded, o.run = nil, -1
	r := o.runs[run]
	bySeries, byText := make(map[string]*textSeries), make(map[string]*textSeries)
	err := o.samples(ctx, func(t int64, v float64, p textSample) error {
		if t < r.Start || t >= r.Limit {
			return nil
		}
		s, ok := byText[string(p.Key())]
		if !ok {
			s = o.seriesOf(p, bySeries)
			byText[string(p.Key())] = s
		}
		if s != nil {
			s.times, s.values = append(s.times, t), append(s.values, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.loaded = slices.SortedFunc(maps.Values(bySeries), func(a, b *textSeries) int { return labels.Compare(a.labels, b.labels) })
	changed, first := 0, ""
	for _, s := range o.loaded {
		if n := s.sort(); n > 0 {
			changed, first = changed+n, cmp.Or(first, s.labels.String())
		}
	}
	if changed > 0 {
		level.Warn(o.logger).Log("msg", "samples are there more than once with other values: the last one of each time is taken", "file", o.path, "samples", changed, "from", r, "first_series", first)
	}
	o.run = run
	return nil
}

// seriesOf returns the series of a sample, which is another text of one that is known or a new one, or nil if it is not selected.
func (o *Text) seriesOf(p textSample, bySeries map[string]*textSeries) *textSeries {
	s := new(textSeries)
	p.Labels(&s.labels)
	if !o.sel.matches(s.labels) {
		return nil
	}
	key := s.labels.String()
	if known, ok := bySeries[key]; ok {
		return known
	}
	bySeries[key] = s
	return s
}

// matches says whether a series is selected.
func (s Selection) matches(ls labels.Labels) bool {
	return len(s.Matchers) == 0 || slices.ContainsFunc(s.Matchers, func(ms []*labels.Matcher) bool { return labels.Selector(ms).Matches(ls) })
}

// A textSeries is the samples of a series, in the order of their source until they are sorted.
type textSeries struct {
	labels labels.Labels
	times  []int64
	values []float64
}

// sort sorts the samples by time, and keeps the last of those of one time. It returns how many it dropped that had another value.
func (s *textSeries) sort() (changed int) {
	if !slices.IsSorted(s.times) {
		order := make([]int, len(s.times))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.times[a], s.times[b]) })
		times, values := make([]int64, len(order)), make([]float64, len(order))
		for i, from := range order {
			times[i], values[i] = s.times[from], s.values[from]
		}
		s.times, s.values = times, values
	}
	n := 0
	for i, t := range s.times {
		if n > 0 && s.times[n-1] == t {
			if math.Float64bits(s.values[n-1]) != math.Float64bits(s.values[i]) {
				changed++
			}
			n--
		}
		s.times[n], s.values[n] = t, s.values[i]
		n++
	}
	s.times, s.values = s.times[:n], s.values[:n]
	return changed
}

// list returns the samples from one number to another as chunks.
func (s *textSeries) list(from, to int) *listSeries {
	var b chunk.Builder
	b.AppendFloats(nil, s.times[from:to], s.values[from:to])
	return &listSeries{s.labels, b.Chunks}
}

// A textSet are the series of a run that have samples in a unit.
type textSet struct {
	storage.ChunkSeriesSet
	series []*textSeries
	unit   Unit
	at     int
	now    *listSeries
}

func (s *textSet) Next() bool {
	for s.at++; s.at < len(s.series); s.at++ {
		of := s.series[s.at]
		from, _ := slices.BinarySearch(of.times, s.unit.Start)
		to, _ := slices.BinarySearch(of.times, s.unit.Limit)
		if from < to {
			s.now = of.list(from, to)
			return true
		}
	}
	return false
}

func (s *textSet) At() storage.ChunkSeries { return s.now }

func (s *textSet) Err() error { return nil }
