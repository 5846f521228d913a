package remote

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

// writeRequest is what the body of a write asks for.
type writeRequest struct {
	// series have at least one sample, histogram or exemplar each. Their labels
	// are sorted by name and have no empty values; whether they, and all else, are
	// valid is not checked yet.
	series []engine.Series
	// size is how many samples, histograms and exemplars series have.
	size     int
	metadata []engine.Metadata
}

// decoder builds a writeRequest. It is used for one request.
type decoder struct {
	out      writeRequest
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
}

// pair is a label in the memory of the request.
type pair struct{ name, value string }

// decodeFunc turns the body of a request into a writeRequest. What can never
// be stored is added to rejected; the error is for a request that is no request
// at all. maxBody is the limit on the body. Nothing in the result refers to
// body.
type decodeFunc func(body []byte, maxBody int, rejected *engine.Rejected) (writeRequest, error)

func newDecoder(maxBody int, rejected *engine.Rejected) *decoder {
	d := &decoder{
		rejected:   rejected,
		labelBytes: budget(maxBody, maxRequestLabelsFactor),
		partBytes:  budget(maxBody, maxRequestPartsFactor),
	}
	// Should labels be kept as they are added, they must be copied: they lie in
	// the body.
	d.builder.SetUnsafeAdd(true)
	return d
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
func (d *decoder) spend(bytes int) error {
	if d.partBytes -= bytes; d.partBytes < 0 {
		return errManyParts
	}
	return nil
}

// decodeHistogram decodes a histogram of either protocol.
func (d *decoder) decodeHistogram(msg field) (engine.Histogram, error) {
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
func (d *decoder) exemplar(pairs []pair, t int64, v float64) (x exemplar.Exemplar, bad, err error) {
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
func (d *decoder) addMetadata(family string, kind model.MetricType, unit, help string) error {
	m := engine.Metadata{Family: family, Metadata: metadata.Metadata{Type: kind, Unit: unit, Help: help}}
	if n := len(d.out.metadata); n > 0 && d.out.metadata[n-1] == m {
		return nil
	}
	if err := d.spend(metadataBytes + len(family) + len(unit) + len(help)); err != nil {
		return err
	}
	m.Family, m.Unit, m.Help = strings.Clone(family), strings.Clone(unit), strings.Clone(help)
	d.out.metadata = append(d.out.metadata, m)
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
func (d *decoder) addSample(s engine.Sample) {
	if len(d.slab) == cap(d.slab) {
		run := d.slab[d.first:]
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
func (d *decoder) reserve(msg []byte) error {
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
		d.slab, d.first = make([]engine.Sample, 0, max(sampleSlab, n)), 0
	}
	return nil
}

// takeSamples ends the run of the current series and returns it.
func (d *decoder) takeSamples() []engine.Sample {
	run := d.slab[d.first:len(d.slab):len(d.slab)]
	d.first = len(d.slab)
	return run
}

// addSeries adds a series, if it has anything.
func (d *decoder) addSeries(s engine.Series) {
	size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	if size == 0 {
		return
	}
	d.out.series = append(d.out.series, s)
	d.out.size += size
}

// errManyLabels marks a request whose labels would take too much memory.
var errManyLabels = fmt.Errorf("the labels of all series take more than %d times the limit on a request", maxRequestLabelsFactor)

// labels makes a label set of pairs, sorted by name, empty values left out.
// tooLong is for labels that no series key can hold: to build them would waste
// memory, or panic over 16 MB. err is for the whole request.
func (d *decoder) labels(pairs []pair) (ls labels.Labels, tooLong, err error) {
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
		series.ErrKeyTooLong, metricName(pairs), abbreviate(p.name), what, size, series.MaxSeriesKey)
}

// metricName quotes the name of the metric of a label set that cannot be built.
func metricName(pairs []pair) string {
	for _, p := range pairs {
		if p.name == labels.MetricName {
			return abbreviate(p.value)
		}
	}
	return abbreviate("")
}

// abbreviate quotes text for an error message, cut after 128 bytes.
func abbreviate(text string) string {
	const limit = 128
	if len(text) <= limit {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q…", strings.ToValidUTF8(text[:limit], ""))
}

// view returns b as a string that is valid as long as b is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
