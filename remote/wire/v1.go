package wire

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

// Tags of fields of 1.0.
const (
	tagSeriesV1 = byte(1<<3 | protowire.BytesType) // WriteRequest.timeseries
	tagLabelV1  = byte(1<<3 | protowire.BytesType) // TimeSeries.labels
)

// V1 decodes requests of remote write 1.0. It is used for one request at a time.
type V1 struct{ decoder }

// NewV1 returns a decoder of bodies of up to maxBody bytes. Use says where it finds series.
func NewV1(maxBody int) *V1 { return &V1{decoder{maxBody: maxBody}} }

// Decode decodes a prometheus.WriteRequest. What can never be stored is added to
// rejected; the error is for a body that is no request. The result is valid until
// Release and does not refer to body.
//
// Decode reads the fields itself: messages of many empty parts would grow
// fiftyfold in the structures of the generated decoder.
func (d *V1) Decode(body []byte, rejected *ingest.Rejected) (WriteRequest, error) {
	d.begin(rejected)
	var err error
	for len(body) > 0 && err == nil {
		if start, end := fastBytes(body, tagSeriesV1); end > 0 {
			err = d.decodeSeries(body[start:end])
			body = body[end:]
			continue
		}
		var f field
		if f, body, err = cutField(body); err != nil {
			break
		}
		switch f.num {
		case 1: // timeseries
			if err = f.want(protowire.BytesType); err == nil {
				err = d.decodeSeries(f.bytes)
			}
		case 3: // metadata
			err = d.decodeMetadata(f)
		case 4, 5:
			err = fmt.Errorf("field %d is one of remote write 2.0, the Content-Type says 1.0", f.num)
		}
	}
	return d.end(err)
}

// decodeSeries decodes a prometheus.TimeSeries.
func (d *V1) decodeSeries(msg []byte) error {
	if err := d.reserveSamples(msg); err != nil {
		return err
	}
	var s ingest.Series
	var text, rest []byte
	s.Cached, text, rest = d.cutLabels(msg)
	d.pairs = d.pairs[:0]
	if s.Cached == nil {
		if err := d.decodeLabels(text); err != nil {
			return err
		}
	}
	var badExemplar error
	for len(rest) > 0 {
		if n := d.fastSample(rest, sampleFieldsV1); n > 0 {
			rest = rest[n:]
			continue
		}
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1: // another label: text is not all of them
			if s.Cached != nil {
				s.Cached, err = nil, d.decodeLabels(text)
			}
			if text = nil; err == nil {
				d.pairs, err = appendLabel(d.pairs, f)
			}
		case 2: // samples
			err = d.decodeSample(f, sampleFieldsV1)
		case 3: // exemplars
			var bad error
			if bad, err = d.decodeExemplar(&s, f); bad != nil {
				badExemplar = bad
			}
		case 4: // histograms
			var h ingest.Histogram
			h, err = d.decodeHistogram(f)
			h.ST = 0 // a field that 1.0 does not have
			s.Histograms = append(s.Histograms, h)
		}
		if err != nil {
			return err
		}
	}
	s.Samples = d.endSamples()
	return d.finishSeries(&s, text, badExemplar)
}

// finishSeries gives a series that is not cached its labels, and adds it. text
// is its wire text, or empty.
func (d *V1) finishSeries(s *ingest.Series, text []byte, badExemplar error) error {
	size := s.Size()
	if size == 0 && badExemplar == nil {
		return nil // harmless: there is nothing to store
	}
	if s.Cached == nil {
		ls, tooLong, err := d.newLabels(d.pairs)
		switch {
		case err != nil:
			return err
		case tooLong != nil:
			d.rejected.Add(ingest.ReasonKeyTooLong, size, tooLong)
			return nil
		}
		s.Labels, s.WireText = ls, d.keepText(formV1, text)
	}
	if badExemplar != nil {
		d.rejected.Add(ingest.ReasonExemplar, 1, fmt.Errorf("series %s: %w", series.Abbreviate(s.DecodedLabels()), badExemplar))
	}
	d.addSeries(s)
	return nil
}

// cutLabels takes the labels off that a TimeSeries begins with, and returns the
// series if it is cached.
func (d *V1) cutLabels(msg []byte) (cached ingest.Cached, text, rest []byte) {
	if cached, text, rest = d.fastCached(msg); cached != nil {
		return cached, text, rest
	}
	text, rest = fastLabels(msg)
	return d.lookup(formV1, text), text, rest
}

// decodeLabels decodes the labels of a wire text.
func (d *V1) decodeLabels(text []byte) error {
	for len(text) > 0 {
		f, rest, err := cutField(text)
		if err != nil {
			return err
		}
		if d.pairs, err = appendLabel(d.pairs, f); err != nil {
			return err
		}
		text = rest
	}
	return nil
}

// decodeExemplar decodes a prometheus.Exemplar of s.
func (d *V1) decodeExemplar(s *ingest.Series, msg field) (bad, err error) {
	d.exemplarPairs = d.exemplarPairs[:0]
	var t int64
	var v float64
	err = msg.each(func(f field) (err error) {
		switch f.num {
		case 1:
			d.exemplarPairs, err = appendLabel(d.exemplarPairs, f)
		case 2:
			v, err = math.Float64frombits(f.value), f.want(protowire.Fixed64Type)
		case 3:
			t, err = int64(f.value), f.want(protowire.VarintType)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	x, bad, err := d.newExemplar(d.exemplarPairs, t, v)
	if bad == nil && err == nil {
		s.Exemplars = append(s.Exemplars, x)
	}
	return bad, err
}

// decodeMetadata decodes a prometheus.MetricMetadata.
func (d *V1) decodeMetadata(msg field) error {
	var kind uint64
	var family, help, unit string
	err := msg.each(func(f field) (err error) {
		switch f.num {
		case 1:
			kind, err = f.value, f.want(protowire.VarintType)
		case 2:
			family, err = view(f.bytes), f.want(protowire.BytesType)
		case 4:
			help, err = view(f.bytes), f.want(protowire.BytesType)
		case 5:
			unit, err = view(f.bytes), f.want(protowire.BytesType)
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.addMetadata(family, metadata.Metadata{Type: metricType(kind), Unit: unit, Help: help})
}

// appendLabel decodes a prometheus.Label.
func appendLabel(pairs []pair, msg field) ([]pair, error) {
	if err := msg.want(protowire.BytesType); err != nil {
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
			p.name, err = view(f.bytes), f.want(protowire.BytesType)
		case 2:
			p.value, err = view(f.bytes), f.want(protowire.BytesType)
		}
		if err != nil {
			return pairs, err
		}
	}
	return append(pairs, p), nil
}
