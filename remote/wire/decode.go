// Package wire decodes requests of remote write 1.0 and 2.0, and of remote read,
// from their protobuf bytes.
//
//	decode.go       what both versions of remote write share
//	v1.go           remote write 1.0
//	v2.go           remote write 2.0
//	v2text.go       the label references of a 2.0 series as a text for the series cache
//	fast.go         the usual encodings of fields, decoded without a loop
//	histogram.go    native histograms of both versions
//	readrequest.go  remote read
//	field.go        one protobuf field
package wire

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

const (
	// sampleSlab is how many samples are allocated at once.
	sampleSlab = 2048

	// maxLabelBytes is how many bytes the labels of one series may have before
	// anybody looks at them: far more than a series key can take, whatever the
	// schema is.
	maxLabelBytes = 64 << 10

	// maxRequestLabelsFactor bounds the labels of all series of a request, in
	// multiples of the limit on its body. In 2.0 a few bytes of references stand
	// for many bytes of labels.
	maxRequestLabelsFactor = 4

	// maxRequestPartsFactor bounds what the histograms, exemplars and metadata of
	// a request take in memory, likewise: a few bytes can stand for an empty one.
	maxRequestPartsFactor = 8
	// minRequestParts is what they may take in any case.
	minRequestParts = 64 << 10
)

// WriteRequest is what the body of a write asks for.
type WriteRequest struct {
	// Series have at least one sample, histogram or exemplar each. Their labels
	// are sorted by name and have no empty values; whether they, and all else, are
	// valid is not checked yet.
	Series []engine.Series
	// Size is how many samples, histograms and exemplars series have.
	Size     int
	Metadata []engine.Metadata
	// Repeated is how many entries of metadata were left out, because they are
	// stored already.
	Repeated int
}

// SeriesCache knows series by the bytes in which a sender writes their labels.
type SeriesCache interface {
	Lookup(tenant string, s engine.WireText) *engine.CachedSeries
	Symbols() *engine.SymbolTable
}

// Forms of spellings.
const (
	// formV1 is the fields of the labels in a TimeSeries of 1.0, as they are sent.
	formV1 byte = iota + 1
	// formV2 is the symbols of the labels in a TimeSeries of 2.0, in the order in
	// which they are sent, as numbers: see spellingv2.go.
	formV2
)

// Decoder builds a writeRequest. It is used for one request at a time, and its
// memory for many.
type Decoder struct {
	finder   SeriesCache
	out      WriteRequest
	rejected *engine.Rejected

	builder labels.ScratchBuilder
	pairs   []pair
	// exemplarPairs is scratch space.
	exemplarPairs []pair
	// labelBytes is what is left for the labels of the request, partBytes for its
	// histograms, exemplars and metadata.
	labelBytes, partBytes int

	histogram wireHistogram

	// slab holds samples; the run that belongs to the series being decoded begins
	// at first.
	slab  []engine.Sample
	first int
	// samples is how many samples the request had in slabs that are full.
	samples int

	// last is the last series that was known.
	last *engine.CachedSeries

	// spellings holds those of new series: the body is gone when they are stored.
	spellings []byte

	// What follows serves 2.0 only.
	symbols []string
	// interned has the numbers of symbols, as far as they have some.
	interned *engine.SymbolTable
	numbers  []uint32
	// refs are those of the labels of a series, unless they are written as
	// everybody does. Then they are in packed, and spelled.
	refs, exemplarRefs []uint64
	packed             []byte
	// spelling is a view of words.
	spelling []byte
	words    []uint32
}

// pair is a label in the memory of the request.
type pair struct{ name, value string }

// DecodeFunc turns the body of a request into a writeRequest, which is valid
// until the decoder is used again. What can never be stored is added to
// rejected; the error is for a request that is no request at all. Nothing in the
// result refers to body.
type DecodeFunc func(d *Decoder, body []byte) (WriteRequest, error)

func NewDecoder(f SeriesCache) *Decoder {
	return &Decoder{finder: f}
}

// Reset prepares d for a request. maxBody is the limit on its body.
func (d *Decoder) Reset(maxBody int, rejected *engine.Rejected) {
	// Should labels be kept as they are added, they must be copied: they lie in
	// the body.
	d.builder = labels.ScratchBuilder{}
	d.builder.SetUnsafeAdd(true)
	d.rejected = rejected
	d.labelBytes = budget(maxBody, maxRequestLabelsFactor)
	d.partBytes = budget(maxBody, maxRequestPartsFactor)
}

const (
	// maxPooledSeries is how many series the memory of a request may have room for
	// to be used again, and a quarter of how many samples and symbols.
	maxPooledSeries = 10_000
	// maxSpellings is how many bytes of the spellings of new series are kept. What
	// is beyond is new once more in the next request.
	maxSpellings = 2 << 20
)

// Release lets go of a request and says whether the memory that it took is good
// for another one.
func (d *Decoder) Release() bool {
	if cap(d.out.Series) > maxPooledSeries || max(cap(d.symbols), cap(d.numbers), cap(d.slab)) > 4*maxPooledSeries ||
		max(cap(d.pairs), cap(d.exemplarPairs), cap(d.refs), cap(d.exemplarRefs)) > maxPooledSeries ||
		d.histogram.size() > request.MaxPooledBytes {
		return false
	}
	// Nothing may lead to the series and to the body.
	clear(d.out.Series)
	clear(d.symbols)
	clear(d.pairs[:cap(d.pairs)])
	clear(d.exemplarPairs[:cap(d.exemplarPairs)])
	d.builder = labels.ScratchBuilder{}
	d.rejected, d.last, d.interned, d.packed = nil, nil, nil, nil

	if n := d.samples + len(d.slab); n > cap(d.slab) && n <= 4*maxPooledSeries {
		d.slab = make([]engine.Sample, 0, n) // next time it will do
	}
	d.out = WriteRequest{Series: d.out.Series[:0]}
	d.slab, d.first, d.samples = d.slab[:0], 0, 0
	d.spellings, d.symbols = d.spellings[:0], d.symbols[:0]
	return true
}

// find returns the series that is spelled so, or nil.
func (d *Decoder) find(form byte, text []byte) *engine.CachedSeries {
	if len(text) == 0 {
		return nil
	}
	known := d.finder.Lookup("", engine.WireText{Form: form, Text: text})
	if known == nil {
		return nil
	}
	if d.last != nil && d.last.Next() != known {
		d.last.SetNext(known)
	}
	d.last = known
	return known
}

// guess returns the series that is likely to come next and its text, which is
// empty if there is none.
func (d *Decoder) guess(form byte) (known *engine.CachedSeries, text string) {
	if d.last == nil {
		return nil, ""
	}
	if known = d.last.Next(); known == nil {
		return nil, ""
	}
	return known, known.Text(form)
}

// keep returns a copy of the spelling of a new series, or none if the request
// has too many: there will be others.
func (d *Decoder) keep(form byte, text []byte) engine.WireText {
	if len(text) == 0 || len(d.spellings)+len(text) > maxSpellings {
		return engine.WireText{}
	}
	first := len(d.spellings)
	d.spellings = append(d.spellings, text...)
	return engine.WireText{Form: form, Text: d.spellings[first:len(d.spellings):len(d.spellings)]}
}

// budget returns factor times the limit on a body.
func budget(maxBody, factor int) int {
	if maxBody > math.MaxInt/factor {
		return math.MaxInt
	}
	return max(factor*maxBody, minRequestParts)
}

// errManyParts marks a request whose parts would take too much memory.
var errManyParts = fmt.Errorf("the histograms, exemplars and metadata take more than %d times the limit on a request", maxRequestPartsFactor)

// spend takes bytes of memory off what is left for the parts of the request.
func (d *Decoder) spend(bytes int) error {
	if d.partBytes -= bytes; d.partBytes < 0 {
		return errManyParts
	}
	return nil
}

// decodeHistogram decodes a histogram of either protocol.
func (d *Decoder) decodeHistogram(msg field) (engine.Histogram, error) {
	if err := d.histogram.decode(msg); err != nil {
		return engine.Histogram{}, err
	}
	if err := d.spend(d.histogram.size()); err != nil {
		return engine.Histogram{}, err
	}
	return d.histogram.histogram(), nil
}

const (
	// exemplarBytes is about what an exemplar takes in memory, without its labels.
	exemplarBytes = 64
	// maxExemplarBytes is how many bytes the labels of an exemplar may have before
	// anybody looks at them: more than its 128 characters can take.
	maxExemplarBytes = 1 << 10
)

// exemplar makes an exemplar of its parts. bad is for labels that are too long
// to look at. The labels are kept as they are, but sorted.
func (d *Decoder) exemplar(pairs []pair, t int64, v float64) (x exemplar.Exemplar, bad, err error) {
	size := 0
	for _, p := range pairs {
		size += len(p.name) + len(p.value)
	}
	if size > maxExemplarBytes {
		return x, fmt.Errorf("exemplar at %d: its labels have %d bytes, the limit is 128 characters", t, size), nil
	}
	if err := d.spend(exemplarBytes + size); err != nil {
		return x, nil, err
	}
	d.builder.Reset()
	for _, p := range pairs {
		d.builder.Add(p.name, p.value)
	}
	d.builder.Sort()
	return exemplar.Exemplar{Labels: d.builder.Labels(), Value: v, Ts: t, HasTs: t != 0}, nil, nil
}

// metadataBytes is about what the metadata of a family take in memory, without
// their texts.
const metadataBytes = 80

// addMetadata adds the metadata of a family, copies of these texts, unless they
// are what was added last.
func (d *Decoder) addMetadata(family string, said metadata.Metadata) error {
	m := engine.Metadata{Family: family, Metadata: said}
	if n := len(d.out.Metadata); n > 0 && d.out.Metadata[n-1] == m {
		return nil
	}
	if err := d.spend(metadataBytes + len(family) + len(said.Unit) + len(said.Help)); err != nil {
		return err
	}
	m.Family, m.Unit, m.Help = strings.Clone(family), strings.Clone(said.Unit), strings.Clone(said.Help)
	d.out.Metadata = append(d.out.Metadata, m)
	return nil
}

// metricType returns the type that a number stands for, in both protocols.
func metricType(v uint64) model.MetricType {
	types := [...]model.MetricType{
		model.MetricTypeUnknown, model.MetricTypeCounter, model.MetricTypeGauge, model.MetricTypeHistogram,
		model.MetricTypeGaugeHistogram, model.MetricTypeSummary, model.MetricTypeInfo, model.MetricTypeStateset,
	}
	if v >= uint64(len(types)) {
		return model.MetricTypeUnknown
	}
	return types[v]
}

// addSample appends a sample to the run of the current series.
func (d *Decoder) addSample(s engine.Sample) {
	if len(d.slab) == cap(d.slab) {
		run := d.slab[d.first:]
		d.samples += d.first
		d.slab = append(make([]engine.Sample, 0, max(sampleSlab, 2*len(run))), run...)
		d.first = 0
	}
	d.slab = append(d.slab, s)
}

// countedBytes is from which size on the samples of a series are counted before
// they are decoded.
const countedBytes = 16 << 10

// reserve makes room for the samples of a series, msg, which are its second
// fields in both protocols. Room that grows with them would take twice as much,
// and be copied.
func (d *Decoder) reserve(msg []byte) error {
	if len(msg) < countedBytes {
		return nil
	}
	n := 0
	for len(msg) > 0 {
		f, next, err := cutField(msg)
		if err != nil {
			return err
		}
		if msg = next; f.num == 2 {
			n++
		}
	}
	if n > cap(d.slab)-len(d.slab) {
		d.samples += len(d.slab)
		d.slab, d.first = make([]engine.Sample, 0, max(sampleSlab, n)), 0
	}
	return nil
}

// takeSamples ends the run of the current series and returns it.
func (d *Decoder) takeSamples() []engine.Sample {
	run := d.slab[d.first:len(d.slab):len(d.slab)]
	d.first = len(d.slab)
	return run
}

// addSeries adds a series, if it has anything.
func (d *Decoder) addSeries(s *engine.Series) {
	size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	if size == 0 {
		return
	}
	d.out.Series = append(d.out.Series, *s)
	d.out.Size += size
}

// errManyLabels marks a request whose labels would take too much memory.
var errManyLabels = fmt.Errorf("the labels of all series take more than %d times the limit on a request", maxRequestLabelsFactor)

// labels makes a label set of pairs, sorted by name, empty values left out.
// tooLong is for labels that no series key can hold: to build them would waste
// memory, or panic over 16 MB. err is for the whole request.
func (d *Decoder) labels(pairs []pair) (ls labels.Labels, tooLong, err error) {
	d.builder.Reset()
	size, last, sorted := 0, "", true
	for _, p := range pairs {
		if p.value == "" {
			continue
		}
		if max(len(p.name), len(p.value)) > series.MaxSeriesKey {
			return ls, longLabelError(pairs, p), nil
		}
		size += len(p.name) + len(p.value)
		d.builder.Add(p.name, p.value)
		sorted = sorted && last <= p.name
		last = p.name
	}
	if size > maxLabelBytes {
		return ls, fmt.Errorf("%w: series %s has labels of %d bytes", series.ErrKeyTooLong, metricName(pairs), size), nil
	}
	if d.labelBytes -= size; d.labelBytes < 0 {
		return ls, nil, errManyLabels
	}
	if !sorted {
		d.builder.Sort()
	}
	return d.builder.Labels(), nil, nil
}

// longLabelError names the series, the label and its length.
func longLabelError(pairs []pair, p pair) error {
	what, size := "value", len(p.value)
	if len(p.name) > series.MaxSeriesKey {
		what, size = "name", len(p.name)
	}
	return fmt.Errorf("%w: series %s has the label %s with a %s of %d bytes, the limit is %d",
		series.ErrKeyTooLong, metricName(pairs), request.Abbreviate(p.name), what, size, series.MaxSeriesKey)
}

// metricName quotes the name of the metric of a label set that cannot be built.
func metricName(pairs []pair) string {
	for _, p := range pairs {
		if p.name == labels.MetricName {
			return request.Abbreviate(p.value)
		}
	}
	return request.Abbreviate("")
}

// view returns b as a string that is valid as long as b is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
