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

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

const (
	// sampleSlab is how many samples are allocated at once.
	sampleSlab = 2048

	// maxLabelBytes bounds the labels of one series before they are checked. It is
	// far more than a series key can hold, whatever the schema is.
	maxLabelBytes = 64 << 10

	// maxRequestLabelsFactor bounds the labels of all series of a request, in
	// multiples of the limit on its body. In 2.0 a few bytes of references stand
	// for many bytes of labels.
	maxRequestLabelsFactor = 4

	// maxRequestPartsFactor bounds the memory of the histograms, exemplars and
	// metadata of a request likewise: an empty one takes few bytes in the body.
	maxRequestPartsFactor = 8
	// minRequestParts is what they may take in any case.
	minRequestParts = 64 << 10
)

// WriteRequest is what the body of a write asks for.
type WriteRequest struct {
	// Series have at least one sample, histogram or exemplar each. Their labels
	// are sorted by name and have no empty values; all else is not checked yet.
	Series []ingest.Series
	// Size is how many samples, histograms and exemplars Series have.
	Size int
	// Metadata are of metric families.
	Metadata []ingest.Metadata
	// Repeated is how many entries were left out of Metadata, because they are
	// stored already.
	Repeated int
}

// SeriesCache finds series by the bytes in which a sender writes their labels:
// an *engine.Engine.
type SeriesCache interface {
	Lookup(s ingest.WireText) *seriescache.Entry
	Symbols() *seriescache.SymbolTable
}

// Forms of wire texts.
const (
	// formV1 is the fields of the labels in a TimeSeries of 1.0, as they are sent.
	formV1 byte = iota + 1
	// formV2 is the labels in a TimeSeries of 2.0, in the order in which they are
	// sent, as numbers of the symbol table: see v2text.go.
	formV2
)

// decoder builds a WriteRequest: the part that both versions share. It is used
// for one request at a time, and its memory for many.
type decoder struct {
	cache SeriesCache
	// maxBody is the limit on the body of a request.
	maxBody  int
	out      WriteRequest
	rejected *ingest.Rejected

	builder labels.ScratchBuilder
	pairs   []pair
	// exemplarPairs is scratch space.
	exemplarPairs []pair
	// labelBytes is what is left for the labels of the request, partBytes for its
	// histograms, exemplars and metadata.
	labelBytes, partBytes int

	histogram wireHistogram

	// slab holds samples; those of the series being decoded begin at first.
	slab  []ingest.Sample
	first int
	// slabSamples is how many samples of the request are in slabs that are full.
	slabSamples int

	// last is the last series that was found in the cache.
	last *seriescache.Entry

	// texts holds the wire texts of new series, which are stored after the body is
	// gone.
	texts []byte
}

// pair is a label in the memory of the request.
type pair struct{ name, value string }

// Use makes d find the series of the next requests in cache. The last request is released.
func (d *decoder) Use(cache SeriesCache) { d.cache = cache }

// begin prepares d for a request. What can never be stored is added to rejected.
func (d *decoder) begin(rejected *ingest.Rejected) {
	// The builder must copy the labels that it keeps: they lie in the body.
	d.builder = labels.ScratchBuilder{}
	d.builder.SetUnsafeAdd(true)
	d.rejected = rejected
	d.labelBytes = budget(d.maxBody, maxRequestLabelsFactor)
	d.partBytes = budget(d.maxBody, maxRequestPartsFactor)
}

// end returns the decoded request, unless decoding failed.
func (d *decoder) end(err error) (WriteRequest, error) {
	if err != nil {
		return WriteRequest{}, request.BadRequest("decode write request: %w", err)
	}
	return d.out, nil
}

const (
	// maxPooledSeries is how many series a decoder may have room for to be used
	// again, and a quarter of how many samples and symbols.
	maxPooledSeries = 10_000
	// maxTexts bounds the wire texts of new series that a request keeps, in bytes.
	// Series beyond it are new once more in the next request.
	maxTexts = 2 << 20
)

// Release ends the use of the last request, and returns whether d may decode
// another one. A decoder whose memory has grown too large may not.
func (d *decoder) Release() bool {
	if cap(d.out.Series) > maxPooledSeries || cap(d.slab) > 4*maxPooledSeries ||
		max(cap(d.pairs), cap(d.exemplarPairs)) > maxPooledSeries || d.histogram.size() > request.MaxPooledBytes {
		return false
	}
	// No pointer to the series or into the body may stay.
	clear(d.out.Series)
	clear(d.pairs[:cap(d.pairs)])
	clear(d.exemplarPairs[:cap(d.exemplarPairs)])
	d.builder = labels.ScratchBuilder{}
	d.rejected, d.last = nil, nil

	if n := d.slabSamples + len(d.slab); n > cap(d.slab) && n <= 4*maxPooledSeries {
		d.slab = make([]ingest.Sample, 0, n) // enough for another request like it
	}
	d.out = WriteRequest{Series: d.out.Series[:0]}
	d.slab, d.first, d.slabSamples = d.slab[:0], 0, 0
	d.texts = d.texts[:0]
	return true
}

// lookup returns the cached series of a wire text, or nil.
func (d *decoder) lookup(form byte, text []byte) ingest.Cached {
	if len(text) == 0 {
		return nil
	}
	cached := d.cache.Lookup(ingest.WireText{Form: form, Text: text})
	if cached == nil {
		return nil
	}
	if d.last != nil && d.last.Next() != cached {
		d.last.SetNext(cached)
	}
	d.last = cached
	return cached.State
}

// predict returns the cached series that is likely to come next and its wire
// text, which is empty if there is none.
func (d *decoder) predict(form byte) (cached *seriescache.Entry, text string) {
	if d.last == nil {
		return nil, ""
	}
	if cached = d.last.Next(); cached == nil {
		return nil, ""
	}
	return cached, cached.Text(form)
}

// keepText returns a copy of the wire text of a new series, or none if the
// request has too many.
func (d *decoder) keepText(form byte, text []byte) ingest.WireText {
	if len(text) == 0 || len(d.texts)+len(text) > maxTexts {
		return ingest.WireText{}
	}
	first := len(d.texts)
	d.texts = append(d.texts, text...)
	return ingest.WireText{Form: form, Text: d.texts[first:len(d.texts):len(d.texts)]}
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

// spendPartBytes takes bytes of memory off what is left for the parts of the
// request.
func (d *decoder) spendPartBytes(bytes int) error {
	if d.partBytes -= bytes; d.partBytes < 0 {
		return errManyParts
	}
	return nil
}

// decodeHistogram decodes a histogram of either version.
func (d *decoder) decodeHistogram(msg field) (ingest.Histogram, error) {
	if err := d.histogram.decode(msg); err != nil {
		return ingest.Histogram{}, err
	}
	if err := d.spendPartBytes(d.histogram.size()); err != nil {
		return ingest.Histogram{}, err
	}
	return d.histogram.histogram(), nil
}

const (
	// exemplarBytes is about what an exemplar takes in memory, without its labels.
	exemplarBytes = 64
	// maxExemplarBytes bounds the labels of an exemplar before they are checked: it
	// is more than their 128 characters can take.
	maxExemplarBytes = 1 << 10
)

// newExemplar makes an exemplar of its parts, with sorted labels. bad is for
// labels that are too long to be checked; err is for the whole request.
func (d *decoder) newExemplar(pairs []pair, t int64, v float64) (x exemplar.Exemplar, bad, err error) {
	size := 0
	for _, p := range pairs {
		size += len(p.name) + len(p.value)
	}
	if size > maxExemplarBytes {
		return x, fmt.Errorf("exemplar at %d: its labels have %d bytes, the limit is 128 characters", t, size), nil
	}
	if err := d.spendPartBytes(exemplarBytes + size); err != nil {
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

// addMetadata adds the metadata of a family, with copies of the texts. It leaves
// them out if they repeat what was added last.
func (d *decoder) addMetadata(family string, decoded metadata.Metadata) error {
	m := ingest.Metadata{Family: family, Metadata: decoded}
	if n := len(d.out.Metadata); n > 0 && d.out.Metadata[n-1] == m {
		return nil
	}
	if err := d.spendPartBytes(metadataBytes + len(family) + len(m.Unit) + len(m.Help)); err != nil {
		return err
	}
	m.Family, m.Unit, m.Help = strings.Clone(family), strings.Clone(m.Unit), strings.Clone(m.Help)
	d.out.Metadata = append(d.out.Metadata, m)
	return nil
}

// metricType returns the type that a number stands for, in both versions.
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

// addSample appends a sample to those of the current series.
func (d *decoder) addSample(s ingest.Sample) {
	if len(d.slab) == cap(d.slab) {
		run := d.slab[d.first:]
		d.slabSamples += d.first
		d.slab = append(make([]ingest.Sample, 0, max(sampleSlab, 2*len(run))), run...)
		d.first = 0
	}
	d.slab = append(d.slab, s)
}

// countedBytes is the size of a series from which on its samples are counted
// before they are decoded.
const countedBytes = 16 << 10

// reserveSamples makes room for the samples of a series, which are the second
// fields of msg in both versions. A slab that grows with them would take twice as
// much, and be copied.
func (d *decoder) reserveSamples(msg []byte) error {
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
		d.slabSamples += len(d.slab)
		d.slab, d.first = make([]ingest.Sample, 0, max(sampleSlab, n)), 0
	}
	return nil
}

// endSamples returns the samples of the current series, and begins those of the
// next.
func (d *decoder) endSamples() []ingest.Sample {
	run := d.slab[d.first:len(d.slab):len(d.slab)]
	d.first = len(d.slab)
	return run
}

// sampleFields is how many fields the sample of a version has: those after it
// are skipped.
type sampleFields = protowire.Number

const (
	sampleFieldsV1 sampleFields = 2 // value, timestamp
	sampleFieldsV2 sampleFields = 3 // value, timestamp, start timestamp
)

// decodeSample decodes a sample, whose first fields are the same in both
// versions.
func (d *decoder) decodeSample(msg field, fields sampleFields) error {
	var s ingest.Sample
	err := msg.each(func(f field) (err error) {
		switch {
		case f.num > fields:
		case f.num == 1:
			s.V, err = math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
		case f.num == 2:
			s.T, err = int64(f.value), f.want(protowire.VarintType)
		case f.num == 3:
			s.ST, err = int64(f.value), f.want(protowire.VarintType)
		}
		return err
	})
	if err == nil {
		d.addSample(s)
	}
	return err
}

// addSeries adds a series, if it has anything.
func (d *decoder) addSeries(s *ingest.Series) {
	size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	if size == 0 {
		return
	}
	d.out.Series = append(d.out.Series, *s)
	d.out.Size += size
}

// errManyLabels marks a request whose labels would take too much memory.
var errManyLabels = fmt.Errorf("the labels of all series take more than %d times the limit on a request", maxRequestLabelsFactor)

// newLabels makes a label set of pairs, sorted by name, without empty values.
// tooLong is for labels that no series key can hold: to build them would waste
// memory, and over 16 MB the builder panics. err is for the whole request.
func (d *decoder) newLabels(pairs []pair) (ls labels.Labels, tooLong, err error) {
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
