package remote

import (
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"

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
)

// writeRequest is what the body of a write asks for.
type writeRequest struct {
	// series have samples, each at least one. Their labels are sorted by name and
	// have no empty values; whether they are valid is not checked yet.
	series  []engine.Series
	samples int

	// metadata and startTimestamps count what is accepted, but not stored.
	metadata        int
	startTimestamps int
}

// decoder builds a writeRequest. It is used for one request.
type decoder struct {
	out      writeRequest
	rejected *engine.Rejected

	histograms unsupported
	exemplars  unsupported

	builder labels.ScratchBuilder
	pairs   []pair
	// labelBytes is what is left for the labels of the request.
	labelBytes int

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
	d := &decoder{rejected: rejected, labelBytes: math.MaxInt}
	if maxBody < math.MaxInt/maxRequestLabelsFactor {
		d.labelBytes = maxRequestLabelsFactor * maxBody
	}
	// Should labels be kept as they are added, they must be copied: they lie in
	// the body.
	d.builder.SetUnsafeAdd(true)
	return d
}

// finish rejects what this version does not store and returns the request.
func (d *decoder) finish() writeRequest {
	d.histograms.reject(d.rejected, engine.ReasonHistogram, "histograms")
	d.exemplars.reject(d.rejected, engine.ReasonExemplar, "exemplars")
	return d.out
}

// unsupported counts what this version does not store.
type unsupported struct {
	n     int
	first labels.Labels
}

func (u *unsupported) add(n int, ls labels.Labels) {
	if u.n == 0 {
		u.first = ls
	}
	u.n += n
}

func (u *unsupported) reject(rejected *engine.Rejected, reason engine.Reason, what string) {
	if u.n > 0 {
		rejected.Add(reason, u.n, fmt.Errorf("%d %s not stored: this version does not store %s yet; first in series %s", u.n, what, what, series.Abbreviate(u.first)))
	}
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

// addSeries adds a series, if it has samples.
func (d *decoder) addSeries(ls labels.Labels, samples []engine.Sample) {
	if len(samples) == 0 {
		return
	}
	d.out.series = append(d.out.series, engine.Series{Labels: ls, Samples: samples})
	d.out.samples += len(samples)
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
