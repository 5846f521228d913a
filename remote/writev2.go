package remote

import (
	"encoding/binary"
	"errors"
	"fmt"

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
		if err == nil && f.num == 5 {
			err = d.series(f, n)
			n++
		}
		if err != nil {
			return writeRequest{}, badRequest("decode write request: %w", err)
		}
		body = rest
	}
	return d.finish(), nil
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

// seriesV2 is what the fields of a TimeSeries, other than its labels and
// samples, came to.
type seriesV2 struct {
	samples      []engine.Sample
	histograms   int
	exemplars    int
	badExemplars int
	badReference error // of an exemplar or of metadata
	hasMetadata  bool
	starts       int  // of samples and histograms
	created      bool // for the whole series
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
			err = d.sampleV2(&s, f)
		case 3:
			err = s.histogram(f)
		case 4:
			err = d.exemplar(&s, f)
		case 5:
			err = d.metadata(&s, f)
		case 6: // created_timestamp, until rc.3 of the specification
			s.created, err = f.value != 0, f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	s.samples = d.takeSamples()
	return d.finishSeries(&s, n)
}

// finishSeries checks the parts of a series against each other. Only what
// breaks the whole request is an error.
func (d *decoderV2) finishSeries(s *seriesV2, n int) error {
	all := len(s.samples) + s.histograms + s.exemplars
	pairs, err := d.resolve(d.refs)
	if err != nil {
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %d of the request: %w", n, err))
		return nil
	}
	ls, tooLong, err := d.labels(pairs)
	switch {
	case err != nil:
		return err
	case tooLong != nil:
		d.rejected.Add(engine.ReasonKeyTooLong, all, tooLong)
		return nil
	case len(s.samples) > 0 && s.histograms > 0:
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %s has both samples and histograms", series.Abbreviate(ls)))
		return nil
	case len(s.samples)+s.histograms == 0:
		d.rejected.Add(engine.ReasonMalformed, all, fmt.Errorf("series %s has neither samples nor histograms", series.Abbreviate(ls)))
		return nil
	}
	d.countIgnored(s)
	d.rejectParts(s, ls)
	d.addSeries(ls, s.samples)
	return nil
}

// countIgnored counts what is accepted, but not stored.
func (d *decoderV2) countIgnored(s *seriesV2) {
	if s.hasMetadata {
		d.out.metadata++
	}
	if s.starts == 0 && s.created {
		s.starts = 1
	}
	d.out.startTimestamps += s.starts
}

// rejectParts rejects the parts of a series that cannot be stored. Its samples
// can.
func (d *decoderV2) rejectParts(s *seriesV2, ls labels.Labels) {
	if s.badReference != nil {
		d.rejected.Add(engine.ReasonMalformed, s.badExemplars, fmt.Errorf("series %s: %w", series.Abbreviate(ls), s.badReference))
	}
	d.histograms.add(s.histograms, ls)
	d.exemplars.add(s.exemplars-s.badExemplars, ls)
}

func (d *decoderV2) sampleV2(s *seriesV2, f field) error {
	start, err := d.sample(f, wireV2)
	if start != 0 {
		s.starts++
	}
	return err
}

// histogram counts a histogram and its start timestamp.
func (s *seriesV2) histogram(msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	s.histograms++
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		if rest = next; f.num == 17 && f.value != 0 {
			s.starts++
		}
	}
	return nil
}

// exemplar counts an exemplar and checks its labels.
func (d *decoderV2) exemplar(s *seriesV2, msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	s.exemplars++
	d.exemplarRefs = d.exemplarRefs[:0]
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err == nil && f.num == 1 {
			d.exemplarRefs, err = appendRefs(d.exemplarRefs, f)
		}
		if err != nil {
			return err
		}
		rest = next
	}
	if err := d.checkRefs(d.exemplarRefs); err != nil {
		s.badExemplars++
		s.badReference = fmt.Errorf("exemplar: %w", err)
	}
	return nil
}

// metadata checks the metadata of a series and notes whether it says anything.
func (d *decoderV2) metadata(s *seriesV2, msg field) error {
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
		case 3, 4: // help, unit
			if f.value >= uint64(len(d.symbols)) {
				s.badReference = fmt.Errorf("metadata: reference %d is not below the number of symbols, %d", f.value, len(d.symbols))
			}
			fallthrough
		case 1: // type
			s.hasMetadata = s.hasMetadata || f.value != 0
			err = f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	return nil
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

// resolve returns the labels that refs stand for, until the next call.
func (d *decoderV2) resolve(refs []uint64) ([]pair, error) {
	if err := d.checkRefs(refs); err != nil {
		return nil, err
	}
	d.pairs = d.pairs[:0]
	for i := 0; i < len(refs); i += 2 {
		d.pairs = append(d.pairs, pair{d.symbols[refs[i]], d.symbols[refs[i+1]]})
	}
	return d.pairs, nil
}
