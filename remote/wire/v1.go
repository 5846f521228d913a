package wire

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// DecodeV1 decodes a prometheus.WriteRequest. It reads the fields itself,
// since messages of many empty parts would grow fiftyfold in the structures of
// the generated decoder.
func DecodeV1(d *Decoder, body []byte) (WriteRequest, error) {
	var err error
	for len(body) > 0 && err == nil {
		if start, end := quickBytes(body, 1<<3|BytesType); end > 0 {
			err = d.seriesV1(body[start:end])
			body = body[end:]
			continue
		}
		var f field
		if f, body, err = cutField(body); err != nil {
			break
		}
		switch f.num {
		case 1: // timeseries
			if err = f.want(BytesType); err == nil {
				err = d.seriesV1(f.bytes)
			}
		case 3: // metadata
			err = d.metadataV1(f)
		case 4, 5:
			err = fmt.Errorf("field %d is one of remote write 2.0, the Content-Type says 1.0", f.num)
		}
	}
	if err != nil {
		return WriteRequest{}, request.BadRequest("decode write request: %w", err)
	}
	return d.out, nil
}

// seriesV1 decodes a prometheus.TimeSeries.
func (d *Decoder) seriesV1(msg []byte) error {
	if err := d.reserve(msg); err != nil {
		return err
	}
	var s engine.Series
	var text, rest []byte
	s.Cached, text, rest = d.findV1(msg)
	d.pairs = d.pairs[:0]
	if s.Cached == nil {
		if err := d.labelsV1(text); err != nil {
			return err
		}
	}
	var badExemplar error
	for len(rest) > 0 {
		if n := d.quickSample(rest, wireV1); n > 0 {
			rest = rest[n:]
			continue
		}
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1: // more labels: text is not all of them
			if s.Cached != nil {
				s.Cached, err = nil, d.labelsV1(text)
			}
			if text = nil; err == nil {
				d.pairs, err = appendLabelV1(d.pairs, f)
			}
		case 2: // samples
			err = d.sample(f, wireV1)
		case 3: // exemplars
			var bad error
			if bad, err = d.exemplarV1(&s, f); bad != nil {
				badExemplar = bad
			}
		case 4: // histograms
			var h engine.Histogram
			h, err = d.decodeHistogram(f)
			h.ST = 0 // a field that 1.0 does not have
			s.Histograms = append(s.Histograms, h)
		}
		if err != nil {
			return err
		}
	}
	s.Samples = d.takeSamples()
	return d.finishV1(&s, text, badExemplar)
}

// finishV1 adds a series that is spelled so, or not at all.
func (d *Decoder) finishV1(s *engine.Series, text []byte, badExemplar error) error {
	size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	if size == 0 && badExemplar == nil {
		return nil // harmless: there is nothing to store
	}
	if s.Cached == nil {
		ls, tooLong, err := d.labels(d.pairs)
		switch {
		case err != nil:
			return err
		case tooLong != nil:
			d.rejected.Add(engine.ReasonKeyTooLong, size, tooLong)
			return nil
		}
		s.Labels, s.WireText = ls, d.keep(formV1, text)
	}
	if badExemplar != nil {
		d.rejected.Add(engine.ReasonExemplar, 1, fmt.Errorf("series %s: %w", series.Abbreviate(s.DecodedLabels()), badExemplar))
	}
	d.addSeries(s)
	return nil
}

// cutLabelsV1 takes the labels off that a TimeSeries begins with: all of them,
// as everybody writes it.
func cutLabelsV1(msg []byte) (text, rest []byte) {
	rest = msg
	for _, end := quickBytes(rest, 1<<3|BytesType); end > 0; _, end = quickBytes(rest, 1<<3|BytesType) {
		rest = rest[end:]
	}
	return msg[:len(msg)-len(rest)], rest
}

// findV1 takes the labels off that a TimeSeries begins with, and returns the
// series if it is known.
func (d *Decoder) findV1(msg []byte) (known *engine.CachedSeries, text, rest []byte) {
	// if the text is followed by no label, it is all that cutLabelsV1 would cut.
	if known, text := d.guess(formV1); text != "" && len(msg) > len(text) &&
		msg[len(text)] != 1<<3|BytesType && string(msg[:len(text)]) == text {
		d.last = known
		return known, msg[:len(text)], msg[len(text):]
	}
	text, rest = cutLabelsV1(msg)
	return d.find(formV1, text), text, rest
}

// labelsV1 decodes the labels that text is made of.
func (d *Decoder) labelsV1(text []byte) error {
	for len(text) > 0 {
		f, rest, err := cutField(text)
		if err != nil {
			return err
		}
		if d.pairs, err = appendLabelV1(d.pairs, f); err != nil {
			return err
		}
		text = rest
	}
	return nil
}

// exemplarV1 decodes a prometheus.Exemplar of s.
func (d *Decoder) exemplarV1(s *engine.Series, msg field) (bad, err error) {
	if err := msg.want(BytesType); err != nil {
		return nil, err
	}
	d.exemplarPairs = d.exemplarPairs[:0]
	var t int64
	var v float64
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return nil, err
		}
		rest = next
		switch f.num {
		case 1:
			d.exemplarPairs, err = appendLabelV1(d.exemplarPairs, f)
		case 2:
			v, err = math.Float64frombits(f.value), f.want(Fixed64Type)
		case 3:
			t, err = int64(f.value), f.want(VarintType)
		}
		if err != nil {
			return nil, err
		}
	}
	x, bad, err := d.exemplar(d.exemplarPairs, t, v)
	if bad == nil && err == nil {
		s.Exemplars = append(s.Exemplars, x)
	}
	return bad, err
}

// metadataV1 decodes a prometheus.MetricMetadata.
func (d *Decoder) metadataV1(msg field) error {
	if err := msg.want(BytesType); err != nil {
		return err
	}
	var kind uint64
	var family, help, unit string
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			kind, err = f.value, f.want(VarintType)
		case 2:
			family, err = view(f.bytes), f.want(BytesType)
		case 4:
			help, err = view(f.bytes), f.want(BytesType)
		case 5:
			unit, err = view(f.bytes), f.want(BytesType)
		}
		if err != nil {
			return err
		}
	}
	return d.addMetadata(family, metadata.Metadata{Type: metricType(kind), Unit: unit, Help: help})
}

// appendLabelV1 decodes a prometheus.Label.
func appendLabelV1(pairs []pair, msg field) ([]pair, error) {
	if err := msg.want(BytesType); err != nil {
		return pairs, err
	}
	var p pair
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return pairs, err
		}
		rest = next
		switch f.num {
		case 1:
			p.name, err = view(f.bytes), f.want(BytesType)
		case 2:
			p.value, err = view(f.bytes), f.want(BytesType)
		}
		if err != nil {
			return pairs, err
		}
	}
	return append(pairs, p), nil
}

// sampleFields says which fields of a sample are known.
type sampleFields uint64

const (
	wireV1 sampleFields = 2 // value, timestamp
	wireV2 sampleFields = 3 // value, timestamp, start timestamp
)

// sample decodes a sample, whose first fields are the same in both protocols.
func (d *Decoder) sample(msg field, known sampleFields) error {
	if err := msg.want(BytesType); err != nil {
		return err
	}
	var s engine.Sample
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch {
		case f.num > uint64(known):
		case f.num == 1:
			s.V, err = math.Float64frombits(f.value), f.want(Fixed64Type)
		case f.num == 2:
			s.T, err = int64(f.value), f.want(VarintType)
		case f.num == 3:
			s.ST, err = int64(f.value), f.want(VarintType)
		}
		if err != nil {
			return err
		}
	}
	d.addSample(s)
	return nil
}
