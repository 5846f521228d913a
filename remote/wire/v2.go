package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// Tags of fields of 2.0.
const (
	tagSymbolV2   = byte(4<<3 | protowire.BytesType) // Request.symbols
	tagSeriesV2   = byte(5<<3 | protowire.BytesType) // Request.timeseries
	tagRefsV2     = byte(1<<3 | protowire.BytesType) // TimeSeries.labels_refs
	tagMetadataV2 = byte(5<<3 | protowire.BytesType) // TimeSeries.metadata
)

// V2 decodes requests of remote write 2.0. It is used for one request at a time.
type V2 struct {
	decoder

	symbols []string
	// table is the symbol table of the cache; numbers are those of symbols in it,
	// or 0.
	table   *seriescache.SymbolTable
	numbers []uint32
	// refs are the label references of a series, unless fastRefs has taken them:
	// then packed are their bytes, and text is made.
	refs, exemplarRefs []uint64
	packed             []byte
	// text is the wire text of a series, in textSpace.
	text, textSpace []byte
}

// NewV2 returns a decoder of bodies of up to maxBody bytes. Use says where it finds series.
func NewV2(maxBody int) *V2 { return &V2{decoder: decoder{maxBody: maxBody}} }

// Decode decodes an io.prometheus.write.v2.Request. Its series may come before
// the symbols that they refer to. What can never be stored is added to rejected;
// the error is for a body that is no request. The result is valid until Release
// and does not refer to body.
func (d *V2) Decode(body []byte, rejected *ingest.Rejected) (WriteRequest, error) {
	d.begin(rejected)
	body, err := d.decodeSymbols(body)
	d.numberSymbols()
	for n := 0; len(body) > 0 && err == nil; {
		if start, end := fastBytes(body, tagSeriesV2); end > 0 {
			err = d.decodeSeries(body[start:end], n)
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
			if err = f.want(protowire.BytesType); err == nil {
				err = d.decodeSeries(f.bytes, n)
			}
			n++
		case f.num <= 3: // reserved, so that this is noticed
			err = fmt.Errorf("field %d is one of remote write 1.0, the Content-Type says 2.0", f.num)
		}
	}
	return d.end(err)
}

// Release ends the use of the last request, and returns whether d may decode
// another one. A decoder whose memory has grown too large may not.
func (d *V2) Release() bool {
	if max(cap(d.symbols), cap(d.numbers)) > 4*maxPooledSeries || max(cap(d.refs), cap(d.exemplarRefs)) > maxPooledSeries || !d.decoder.Release() {
		return false
	}
	clear(d.symbols)
	d.symbols, d.table, d.packed = d.symbols[:0], nil, nil
	return true
}

// decodeSymbols collects the symbols of a request, which are views of body, and
// returns what follows those that it begins with. The first symbol must be empty,
// if there are symbols or series.
func (d *V2) decodeSymbols(body []byte) (rest []byte, err error) {
	for start, end := fastBytes(body, tagSymbolV2); end > 0; start, end = fastBytes(body, tagSymbolV2) {
		d.addSymbol(body[start:end], body[end:])
		body = body[end:]
	}
	used := len(d.symbols) > 0
	for rest := body; len(rest) > 0; {
		if _, end := fastBytes(rest, tagSeriesV2); end > 0 {
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
			if err := f.want(protowire.BytesType); err != nil {
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

// addSymbol adds a symbol, which rest follows.
func (d *V2) addSymbol(symbol, rest []byte) {
	if len(d.symbols) == cap(d.symbols) {
		d.symbols = slices.Grow(d.symbols, 1+countSymbols(rest))
	}
	d.symbols = append(d.symbols, view(symbol))
}

// countSymbols returns how many symbols rest has: a slice that grows with them
// would take twice the memory. Malformed fields are reported later.
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

// seriesV2 is a series and what is decoded beside it.
type seriesV2 struct {
	ingest.Series
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

// decodeSeries decodes the nth io.prometheus.write.v2.TimeSeries.
func (d *V2) decodeSeries(msg []byte, n int) error {
	if err := d.reserveSamples(msg); err != nil {
		return err
	}
	rest := d.fastRefs(msg)
	for n := d.fastSample(rest, sampleFieldsV2); n > 0; n = d.fastSample(rest, sampleFieldsV2) {
		rest = rest[n:]
	}
	// Most series have nothing else.
	if len(d.slab) > d.first && (len(rest) == 0 || string(rest) == emptyMetadataV2) {
		if cached := d.findCached(); cached != nil {
			d.addSeries(&ingest.Series{Cached: cached, Samples: d.endSamples()})
			return nil
		}
	}
	return d.decodeRest(rest, n)
}

// emptyMetadataV2 is what the generated code writes for no metadata.
const emptyMetadataV2 = "\x2a\x00"

// decodeRest decodes what is left of the nth TimeSeries after the references
// and samples that it begins with.
func (d *V2) decodeRest(rest []byte, n int) error {
	var s seriesV2
	for len(rest) > 0 {
		if n := d.fastSample(rest, sampleFieldsV2); n > 0 {
			rest = rest[n:]
			continue
		}
		if start, end := fastBytes(rest, tagMetadataV2); end > 0 {
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
			err = d.addRefs(f)
		case 2:
			err = d.decodeSample(f, sampleFieldsV2)
		case 3:
			var h ingest.Histogram
			h, err = d.decodeHistogram(f)
			s.Histograms = append(s.Histograms, h)
		case 4:
			err = d.decodeExemplar(&s, f)
		case 5:
			if err = f.want(protowire.BytesType); err == nil {
				err = s.metadata.decode(f.bytes)
			}
		case 6: // created_timestamp, until rc.3 of the specification
			s.created, err = int64(f.value), f.want(protowire.VarintType)
		}
		if err != nil {
			return err
		}
	}
	s.Samples = d.endSamples()
	s.setStart(s.created)
	return d.finishSeries(&s, n)
}

// setStart gives a start timestamp to all samples and histograms that have none.
func (s *seriesV2) setStart(created int64) {
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

// finishSeries checks the parts of a series against each other, and adds it. The
// error is for the whole request. The specification does not allow a series of
// exemplars alone, but Prometheus sends exemplars so.
func (d *V2) finishSeries(s *seriesV2, n int) error {
	all := s.Size() + s.badExemplars
	if s.Cached = d.findCached(); s.Cached == nil {
		stored, err := d.resolveSeries(s, all, n)
		if err != nil || !stored {
			return err
		}
	}
	switch {
	case len(s.Samples) > 0 && len(s.Histograms) > 0:
		d.rejected.Add(ingest.ReasonMalformed, all, fmt.Errorf("series %s has both samples and histograms", series.Abbreviate(s.Series.DecodedLabels())))
		return nil
	case all == 0:
		d.rejected.Add(ingest.ReasonMalformed, 0, fmt.Errorf("series %s has neither samples nor histograms", series.Abbreviate(s.Series.DecodedLabels())))
		return nil
	}
	if err := d.addSeriesMetadata(s); err != nil {
		return err
	}
	if s.bad != nil {
		d.rejected.Add(ingest.ReasonMalformed, s.badExemplars, fmt.Errorf("series %s: %w", series.Abbreviate(s.Series.DecodedLabels()), s.bad))
	}
	d.addSeries(&s.Series)
	return nil
}

// resolveSeries gives the nth series of the request the labels that its references
// stand for. If ok is false, all that it has is rejected.
func (d *V2) resolveSeries(s *seriesV2, all, n int) (ok bool, err error) {
	if err := d.unpackRefs(); err != nil {
		return false, err
	}
	pairs, bad := d.resolveRefs(d.pairs[:0], d.refs)
	if bad != nil {
		d.rejected.Add(ingest.ReasonMalformed, all, fmt.Errorf("series %d of the request: %w", n, bad))
		return false, nil
	}
	d.pairs = pairs
	ls, tooLong, err := d.newLabels(pairs)
	if tooLong != nil {
		d.rejected.Add(ingest.ReasonKeyTooLong, all, tooLong)
	}
	if err != nil || tooLong != nil {
		return false, err
	}
	s.Labels, s.WireText = ls, d.newText()
	return true, nil
}

// decodeExemplar decodes an io.prometheus.write.v2.Exemplar.
func (d *V2) decodeExemplar(s *seriesV2, msg field) error {
	d.exemplarRefs = d.exemplarRefs[:0]
	var t int64
	var v float64
	err := msg.each(func(f field) (err error) {
		switch f.num {
		case 1:
			d.exemplarRefs, err = appendRefs(d.exemplarRefs, f)
		case 2:
			v, err = math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
		case 3:
			t, err = int64(f.value), f.want(protowire.VarintType)
		}
		return err
	})
	if err != nil {
		return err
	}
	pairs, bad := d.resolveRefs(d.exemplarPairs[:0], d.exemplarRefs)
	if bad != nil {
		s.badExemplars, s.bad = s.badExemplars+1, fmt.Errorf("exemplar: %w", bad)
		return nil
	}
	d.exemplarPairs = pairs
	x, bad, err := d.newExemplar(pairs, t, v)
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
			m.kind, err = f.value, f.want(protowire.VarintType)
		case 3:
			m.helpRef, err = f.value, f.want(protowire.VarintType)
		case 4:
			m.unitRef, err = f.value, f.want(protowire.VarintType)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addSeriesMetadata adds the metadata of a series, unless they are empty.
func (d *V2) addSeriesMetadata(s *seriesV2) error {
	m := s.metadata
	if m == (metadataV2{}) {
		return nil
	}
	if ref := max(m.helpRef, m.unitRef); ref >= uint64(len(d.symbols)) {
		s.bad = fmt.Errorf("metadata: reference %d is not below the number of symbols, %d", ref, len(d.symbols))
		return nil
	}
	decoded := metadata.Metadata{Type: metricType(m.kind), Unit: d.symbols[m.unitRef], Help: d.symbols[m.helpRef]}
	if s.Cached == nil {
		return d.addMetadata(ingest.FamilyName(s.Labels.Get(labels.MetricName), decoded.Type), decoded)
	}
	family, changed := s.Cached.CompareMetadata(decoded)
	if !changed {
		d.out.Repeated++
		return nil
	}
	return d.addMetadata(family, decoded)
}

// appendRefs appends the references of a labels_refs field, packed or not.
func appendRefs(refs []uint64, f field) ([]uint64, error) {
	if f.wire == protowire.VarintType {
		return append(refs, f.value), nil
	}
	if err := f.want(protowire.BytesType); err != nil {
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

// checkRefs returns an error unless refs are pairs of symbols.
func (d *V2) checkRefs(refs []uint64) error {
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

// resolveRefs appends the labels that refs stand for.
func (d *V2) resolveRefs(dst []pair, refs []uint64) ([]pair, error) {
	if err := d.checkRefs(refs); err != nil {
		return nil, err
	}
	for i := 0; i < len(refs); i += 2 {
		dst = append(dst, pair{d.symbols[refs[i]], d.symbols[refs[i+1]]})
	}
	return dst, nil
}
