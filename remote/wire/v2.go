package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// DecodeV2 decodes an io.prometheus.write.v2.Request. Its series may come
// before the symbols that they refer to.
func DecodeV2(d *Decoder, body []byte) (WriteRequest, error) {
	body, err := d.decodeSymbols(body)
	d.numberSymbols()
	for n := 0; len(body) > 0 && err == nil; {
		if start, end := quickBytes(body, 5<<3|BytesType); end > 0 {
			err = d.seriesV2(body[start:end], n)
			body = body[end:]
			n++
			continue
		}
		var f field
		if f, body, err = cutField(body); err != nil {
			break
		}
		switch {
		case f.num == 5:
			if err = f.want(BytesType); err == nil {
				err = d.seriesV2(f.bytes, n)
			}
			n++
		case f.num <= 3: // reserved, so that this is noticed
			err = fmt.Errorf("field %d is one of remote write 1.0, the Content-Type says 2.0", f.num)
		}
	}
	if err != nil {
		return WriteRequest{}, request.BadRequest("decode write request: %w", err)
	}
	return d.out, nil
}

// decodeSymbols finds the symbols of a request, views of body, and returns what
// follows those that it begins with. The first must be empty, if anything refers
// to symbols at all.
func (d *Decoder) decodeSymbols(body []byte) (rest []byte, err error) {
	for start, end := quickBytes(body, 4<<3|BytesType); end > 0; start, end = quickBytes(body, 4<<3|BytesType) {
		d.addSymbol(body[start:end], body[end:])
		body = body[end:]
	}
	used := len(d.symbols) > 0
	for rest := body; len(rest) > 0; {
		if _, end := quickBytes(rest, 5<<3|BytesType); end > 0 {
			rest, used = rest[end:], true
			continue
		}
		f, next, err := cutField(rest)
		if err != nil {
			return nil, err
		}
		rest = next
		switch f.num {
		case 4:
			if err := f.want(BytesType); err != nil {
				return nil, err
			}
			d.addSymbol(f.bytes, rest)
			used = true
		case 5:
			used = true
		}
	}
	if used && (len(d.symbols) == 0 || d.symbols[0] != "") {
		return nil, errors.New("the first symbol is not the empty string")
	}
	return body, nil
}

// addSymbol adds a symbol that stands before rest.
func (d *Decoder) addSymbol(symbol, rest []byte) {
	if len(d.symbols) == cap(d.symbols) {
		d.symbols = slices.Grow(d.symbols, 1+countSymbols(rest))
	}
	d.symbols = append(d.symbols, view(symbol))
}

// countSymbols returns how many symbols rest has: a table that grows as they
// come would take twice the room. What is wrong with rest is found later.
func countSymbols(rest []byte) (n int) {
	for len(rest) > 0 {
		f, next, err := cutField(rest)
		if err != nil {
			break
		}
		if rest = next; f.num == 4 {
			n++
		}
	}
	return n
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

// seriesV2 decodes the nth io.prometheus.write.v2.TimeSeries.
func (d *Decoder) seriesV2(msg []byte, n int) error {
	if err := d.reserve(msg); err != nil {
		return err
	}
	rest := d.quickRefs(msg)
	for n := d.quickSample(rest, wireV2); n > 0; n = d.quickSample(rest, wireV2) {
		rest = rest[n:]
	}
	// That is all there is to most of them.
	if len(d.slab) > d.first && (len(rest) == 0 || string(rest) == emptyMetadataV2) {
		if known := d.findV2(); known != nil {
			d.addSeries(&engine.Series{Cached: known, Samples: d.takeSamples()})
			return nil
		}
	}
	return d.wholeSeriesV2(rest, n)
}

// emptyMetadataV2 is what the generated code writes for no metadata.
const emptyMetadataV2 = "\x2a\x00"

// wholeSeriesV2 decodes what is left of the nth TimeSeries after the references
// and samples that it begins with.
func (d *Decoder) wholeSeriesV2(rest []byte, n int) error {
	var s seriesV2
	for len(rest) > 0 {
		if n := d.quickSample(rest, wireV2); n > 0 {
			rest = rest[n:]
			continue
		}
		if start, end := quickBytes(rest, 5<<3|BytesType); end > 0 {
			if err := s.metadata.decode(rest[start:end]); err != nil {
				return err
			}
			rest = rest[end:]
			continue
		}
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			err = d.labelRefs(f)
		case 2:
			err = d.sample(f, wireV2)
		case 3:
			var h engine.Histogram
			h, err = d.decodeHistogram(f)
			s.Histograms = append(s.Histograms, h)
		case 4:
			err = d.exemplarV2(&s, f)
		case 5:
			if err = f.want(BytesType); err == nil {
				err = s.metadata.decode(f.bytes)
			}
		case 6: // created_timestamp, until rc.3 of the specification
			s.created, err = int64(f.value), f.want(VarintType)
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
func (d *Decoder) finishSeries(s *seriesV2, n int) error {
	all := len(s.Samples) + len(s.Histograms) + len(s.Exemplars) + s.badExemplars
	if s.Cached = d.findV2(); s.Cached == nil {
		stored, err := d.newSeries(s, all, n)
		if err != nil || !stored {
			return err
		}
	}
	switch {
	case len(s.Samples) > 0 && len(s.Histograms) > 0:
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %s has both samples and histograms", series.Abbreviate(s.Series.DecodedLabels())))
		return nil
	case all == 0:
		d.rejected.Add(engine.ReasonMalformed, 0, fmt.Errorf("series %s has neither samples nor histograms", series.Abbreviate(s.Series.DecodedLabels())))
		return nil
	}
	if err := d.takeMetadata(s); err != nil {
		return err
	}
	if s.bad != nil {
		d.rejected.Add(engine.ReasonMalformed, s.badExemplars, fmt.Errorf("series %s: %w", series.Abbreviate(s.Series.DecodedLabels()), s.bad))
	}
	d.addSeries(&s.Series)
	return nil
}

// newSeries gives the nth series of the request the labels that its references
// stand for. ok says that they are no reason to reject all that it has.
func (d *Decoder) newSeries(s *seriesV2, all, n int) (ok bool, err error) {
	if err := d.unpack(); err != nil {
		return false, err
	}
	pairs, bad := d.resolve(d.pairs[:0], d.refs)
	if bad != nil {
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %d of the request: %w", n, bad))
		return false, nil
	}
	d.pairs = pairs
	ls, tooLong, err := d.labels(pairs)
	if tooLong != nil {
		d.rejected.Add(engine.ReasonKeyTooLong, all, tooLong)
	}
	if err != nil || tooLong != nil {
		return false, err
	}
	s.Labels, s.WireText = ls, d.spellNew()
	return true, nil
}

// exemplarV2 decodes an io.prometheus.write.v2.Exemplar.
func (d *Decoder) exemplarV2(s *seriesV2, msg field) error {
	if err := msg.want(BytesType); err != nil {
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
			v, err = math.Float64frombits(f.value), f.want(Fixed64Type)
		case 3:
			t, err = int64(f.value), f.want(VarintType)
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
func (m *metadataV2) decode(msg []byte) error {
	for rest := msg; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			m.kind, err = f.value, f.want(VarintType)
		case 3:
			m.helpRef, err = f.value, f.want(VarintType)
		case 4:
			m.unitRef, err = f.value, f.want(VarintType)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeMetadata takes the metadata of a series, if they say anything.
func (d *Decoder) takeMetadata(s *seriesV2) error {
	m := s.metadata
	if m == (metadataV2{}) {
		return nil
	}
	if ref := max(m.helpRef, m.unitRef); ref >= uint64(len(d.symbols)) {
		s.bad = fmt.Errorf("metadata: reference %d is not below the number of symbols, %d", ref, len(d.symbols))
		return nil
	}
	said := metadata.Metadata{Type: metricType(m.kind), Unit: d.symbols[m.unitRef], Help: d.symbols[m.helpRef]}
	if s.Cached == nil {
		return d.addMetadata(engine.FamilyName(s.Labels.Get(labels.MetricName), said.Type), said)
	}
	family, news := s.Cached.State.CompareMetadata(said)
	if !news {
		d.out.Repeated++
		return nil
	}
	return d.addMetadata(family, said)
}

// appendRefs appends the references of a labels_refs field, packed or not.
func appendRefs(refs []uint64, f field) ([]uint64, error) {
	if f.wire == VarintType {
		return append(refs, f.value), nil
	}
	if err := f.want(BytesType); err != nil {
		return refs, err
	}
	for rest := f.bytes; len(rest) > 0; {
		switch {
		case rest[0] < 0x80:
			refs, rest = append(refs, uint64(rest[0])), rest[1:]
			continue
		case len(rest) > 1 && rest[1] < 0x80:
			refs, rest = append(refs, uint64(rest[0]&0x7f)|uint64(rest[1])<<7), rest[2:]
			continue
		}
		ref, n := binary.Uvarint(rest)
		if n <= 0 {
			return refs, errWire
		}
		refs, rest = append(refs, ref), rest[n:]
	}
	return refs, nil
}

// checkRefs says what is wrong with the references of a label set.
func (d *Decoder) checkRefs(refs []uint64) error {
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
func (d *Decoder) resolve(dst []pair, refs []uint64) ([]pair, error) {
	if err := d.checkRefs(refs); err != nil {
		return nil, err
	}
	for i := 0; i < len(refs); i += 2 {
		dst = append(dst, pair{d.symbols[refs[i]], d.symbols[refs[i+1]]})
	}
	return dst, nil
}
