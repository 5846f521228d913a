package remote

import (
	"fmt"
	"math"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

// decodeV1 decodes a prometheus.WriteRequest. It reads the fields itself,
// since messages of many empty parts would grow fiftyfold in the structures of
// the generated decoder.
func decodeV1(body []byte, maxBody int, rejected *engine.Rejected) (writeRequest, error) {
	d := newDecoder(maxBody, rejected)
	for len(body) > 0 {
		f, rest, err := cutField(body)
		if err != nil {
			return writeRequest{}, badRequest("decode write request: %w", err)
		}
		body = rest
		switch f.num {
		case 1: // timeseries
			if err := d.seriesV1(f); err != nil {
				return writeRequest{}, badRequest("decode write request: %w", err)
			}
		case 3: // metadata
			if err := d.metadataV1(f); err != nil {
				return writeRequest{}, badRequest("decode write request: %w", err)
			}
		case 4, 5:
			return writeRequest{}, badRequest("decode write request: field %d is one of remote write 2.0, the Content-Type says 1.0", f.num)
		}
	}
	return d.out, nil
}

// seriesV1 decodes a prometheus.TimeSeries.
func (d *decoder) seriesV1(msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	if err := d.reserve(msg.bytes); err != nil {
		return err
	}
	d.pairs = d.pairs[:0]
	var s engine.Series
	var badExemplar error
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1: // labels
			d.pairs, err = appendLabelV1(d.pairs, f)
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
	size := len(s.Samples) + len(s.Histograms) + len(s.Exemplars)
	if size == 0 && badExemplar == nil {
		return nil // harmless: there is nothing to store
	}
	ls, tooLong, err := d.labels(d.pairs)
	switch {
	case err != nil:
		return err
	case tooLong != nil:
		d.rejected.Add(engine.ReasonKeyTooLong, size, tooLong)
		return nil
	case badExemplar != nil:
		d.rejected.Add(engine.ReasonExemplar, 1, fmt.Errorf("series %s: %w", series.Abbreviate(ls), badExemplar))
	}
	s.Labels = ls
	d.addSeries(s)
	return nil
}

// exemplarV1 decodes a prometheus.Exemplar of s.
func (d *decoder) exemplarV1(s *engine.Series, msg field) (bad, err error) {
	if err := msg.want(wireBytes); err != nil {
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
			v, err = math.Float64frombits(f.value), f.want(wireFixed64)
		case 3:
			t, err = int64(f.value), f.want(wireVarint)
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
func (d *decoder) metadataV1(msg field) error {
	if err := msg.want(wireBytes); err != nil {
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
			kind, err = f.value, f.want(wireVarint)
		case 2:
			family, err = view(f.bytes), f.want(wireBytes)
		case 4:
			help, err = view(f.bytes), f.want(wireBytes)
		case 5:
			unit, err = view(f.bytes), f.want(wireBytes)
		}
		if err != nil {
			return err
		}
	}
	return d.addMetadata(family, metricType(kind), unit, help)
}

// appendLabelV1 decodes a prometheus.Label.
func appendLabelV1(pairs []pair, msg field) ([]pair, error) {
	if err := msg.want(wireBytes); err != nil {
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
			p.name, err = view(f.bytes), f.want(wireBytes)
		case 2:
			p.value, err = view(f.bytes), f.want(wireBytes)
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
func (d *decoder) sample(msg field, known sampleFields) error {
	if err := msg.want(wireBytes); err != nil {
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
			s.V, err = math.Float64frombits(f.value), f.want(wireFixed64)
		case f.num == 2:
			s.T, err = int64(f.value), f.want(wireVarint)
		case f.num == 3:
			s.ST, err = int64(f.value), f.want(wireVarint)
		}
		if err != nil {
			return err
		}
	}
	d.addSample(s)
	return nil
}
