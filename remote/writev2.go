package remote

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// decodeV2 decodes an io.prometheus.write.v2.Request. Its series may come
// before the symbols that they refer to.
func decodeV2(body []byte, maxBody int, rejected *engine.Rejected) (writeRequest, error) {
	symbols, err := decodeSymbols(body)
	if err != nil {
		return writeRequest{}, badRequest("decode write request: %w", err)
	}
	d := &decoderV2{decoder: newDecoder(maxBody, rejected), symbols: symbols}
	for n := 0; len(body) > 0; {
		f, rest, err := cutField(body)
		switch {
		case err != nil:
		case f.num == 5:
			err = d.series(f, n)
			n++
		case f.num <= 3: // reserved, so that this is noticed
			err = fmt.Errorf("field %d is one of remote write 1.0, the Content-Type says 2.0", f.num)
		}
		if err != nil {
			return writeRequest{}, badRequest("decode write request: %w", err)
		}
		body = rest
	}
	return d.out, nil
}

// decodeSymbols returns the symbols of a request: views of body. The first
// must be empty, if anything refers to symbols at all.
func decodeSymbols(body []byte) ([]string, error) {
	n, used := 0, false
	for rest := body; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return nil, err
		}
		if rest = next; f.num == 4 {
			n++
		}
		used = used || f.num == 4 || f.num == 5
	}
	symbols := make([]string, 0, n)
	for rest := body; len(rest) > 0; {
		f, next, _ := cutField(rest)
		if rest = next; f.num != 4 {
			continue
		}
		if err := f.want(wireBytes); err != nil {
			return nil, err
		}
		symbols = append(symbols, view(f.bytes))
	}
	if used && (len(symbols) == 0 || symbols[0] != "") {
		return nil, errors.New("the first symbol is not the empty string")
	}
	return symbols, nil
}

// decoderV2 decodes against a table of symbols.
type decoderV2 struct {
	*decoder
	symbols []string
	refs    []uint64
	// exemplarRefs is scratch space.
	exemplarRefs []uint64
}

// seriesV2 is what the fields of a TimeSeries, other than its labels, came to.
type seriesV2 struct {
	engine.Series
	badExemplars int
	bad          error // of an exemplar or of metadata
	created      int64 // start timestamp of the whole series
	metadata     metadataV2
}

// metadataV2 is the metadata of a series.
type metadataV2 struct {
	kind             uint64
	helpRef, unitRef uint64
}

// series decodes the nth io.prometheus.write.v2.TimeSeries.
func (d *decoderV2) series(msg field, n int) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	if err := d.reserve(msg.bytes); err != nil {
		return err
	}
	var s seriesV2
	d.refs = d.refs[:0]
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			d.refs, err = appendRefs(d.refs, f)
		case 2:
			err = d.sample(f, wireV2)
		case 3:
			var h engine.Histogram
			h, err = d.decodeHistogram(f)
			s.Histograms = append(s.Histograms, h)
		case 4:
			err = d.exemplarV2(&s, f)
		case 5:
			err = s.metadata.decode(f)
		case 6: // created_timestamp, until rc.3 of the specification
			s.created, err = int64(f.value), f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	s.Samples = d.takeSamples()
	s.start(s.created)
	return d.finishSeries(&s, n)
}

// start gives a start timestamp to all samples and histograms that have none.
func (s *seriesV2) start(created int64) {
	for i := range s.Samples {
		if s.Samples[i].ST == 0 {
			s.Samples[i].ST = created
		}
	}
	for i := range s.Histograms {
		if s.Histograms[i].ST == 0 {
			s.Histograms[i].ST = created
		}
	}
}

// finishSeries checks the parts of a series against each other. Only what
// breaks the whole request is an error. A series that has nothing but exemplars
// is against the specification, but that is how Prometheus sends exemplars.
func (d *decoderV2) finishSeries(s *seriesV2, n int) error {
	all := len(s.Samples) + len(s.Histograms) + len(s.Exemplars) + s.badExemplars
	pairs, err := d.resolve(d.pairs[:0], d.refs)
	if err != nil {
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %d of the request: %w", n, err))
		return nil
	}
	d.pairs = pairs
	ls, tooLong, err := d.labels(pairs)
	switch {
	case err != nil:
		return err
	case tooLong != nil:
		d.rejected.Add(engine.ReasonKeyTooLong, all, tooLong)
		return nil
	case len(s.Samples) > 0 && len(s.Histograms) > 0:
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %s has both samples and histograms", series.Abbreviate(ls)))
		return nil
	case all == 0:
		d.rejected.Add(engine.ReasonMalformed, 0, fmt.Errorf("series %s has neither samples nor histograms", series.Abbreviate(ls)))
		return nil
	}
	if err := d.takeMetadata(s, ls.Get(labels.MetricName)); err != nil {
		return err
	}
	if s.bad != nil {
		d.rejected.Add(engine.ReasonMalformed, s.badExemplars, fmt.Errorf("series %s: %w", series.Abbreviate(ls), s.bad))
	}
	s.Labels = ls
	d.addSeries(s.Series)
	return nil
}

// exemplarV2 decodes an io.prometheus.write.v2.Exemplar.
func (d *decoderV2) exemplarV2(s *seriesV2, msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	d.exemplarRefs = d.exemplarRefs[:0]
	var t int64
	var v float64
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			d.exemplarRefs, err = appendRefs(d.exemplarRefs, f)
		case 2:
			v, err = math.Float64frombits(f.value), f.want(wireFixed64)
		case 3:
			t, err = int64(f.value), f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	pairs, bad := d.resolve(d.exemplarPairs[:0], d.exemplarRefs)
	if bad != nil {
		s.badExemplars, s.bad = s.badExemplars+1, fmt.Errorf("exemplar: %w", bad)
		return nil
	}
	d.exemplarPairs = pairs
	x, bad, err := d.exemplar(pairs, t, v)
	switch {
	case err != nil:
		return err
	case bad != nil:
		s.badExemplars, s.bad = s.badExemplars+1, bad
	default:
		s.Exemplars = append(s.Exemplars, x)
	}
	return nil
}

// decode decodes an io.prometheus.write.v2.Metadata.
func (m *metadataV2) decode(msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			m.kind, err = f.value, f.want(wireVarint)
		case 3:
			m.helpRef, err = f.value, f.want(wireVarint)
		case 4:
			m.unitRef, err = f.value, f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeMetadata takes the metadata of a series of this name, if they say
// anything.
func (d *decoderV2) takeMetadata(s *seriesV2, name string) error {
	m := s.metadata
	if m == (metadataV2{}) {
		return nil
	}
	if ref := max(m.helpRef, m.unitRef); ref >= uint64(len(d.symbols)) {
		s.bad = fmt.Errorf("metadata: reference %d is not below the number of symbols, %d", ref, len(d.symbols))
		return nil
	}
	kind := metricType(m.kind)
	return d.addMetadata(engine.FamilyName(name, kind), kind, d.symbols[m.unitRef], d.symbols[m.helpRef])
}

// appendRefs appends the references of a labels_refs field, packed or not.
func appendRefs(refs []uint64, f field) ([]uint64, error) {
	if f.wire == wireVarint {
		return append(refs, f.value), nil
	}
	if err := f.want(wireBytes); err != nil {
		return refs, err
	}
	for rest := f.bytes; len(rest) > 0; {
		ref, n := binary.Uvarint(rest)
		if n <= 0 {
			return refs, errWire
		}
		refs, rest = append(refs, ref), rest[n:]
	}
	return refs, nil
}

// checkRefs says what is wrong with the references of a label set.
func (d *decoderV2) checkRefs(refs []uint64) error {
	if len(refs)%2 != 0 {
		return fmt.Errorf("an odd number of label references, %d", len(refs))
	}
	for _, ref := range refs {
		if ref >= uint64(len(d.symbols)) {
			return fmt.Errorf("label reference %d is not below the number of symbols, %d", ref, len(d.symbols))
		}
	}
	return nil
}

// resolve appends the labels that refs stand for.
func (d *decoderV2) resolve(dst []pair, refs []uint64) ([]pair, error) {
	if err := d.checkRefs(refs); err != nil {
		return nil, err
	}
	for i := 0; i < len(refs); i += 2 {
		dst = append(dst, pair{d.symbols[refs[i]], d.symbols[refs[i+1]]})
	}
	return dst, nil
}
