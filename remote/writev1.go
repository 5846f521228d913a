package remote

import (
	"math"

	"github.com/promtable/promtable/remote/engine"
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
			if err := f.want(wireBytes); err != nil {
				return writeRequest{}, badRequest("decode write request: %w", err)
			}
			d.out.metadata++
		}
	}
	return d.finish(), nil
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
	var exemplars, histograms int
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1: // labels
			err = d.labelV1(f)
		case 2: // samples
			_, err = d.sample(f, wireV1)
		case 3: // exemplars
			exemplars++
			err = f.want(wireBytes)
		case 4: // histograms
			histograms++
			err = f.want(wireBytes)
		}
		if err != nil {
			return err
		}
	}
	samples := d.takeSamples()
	if len(samples)+exemplars+histograms == 0 {
		return nil // harmless: there is nothing to store
	}
	ls, tooLong, err := d.labels(d.pairs)
	switch {
	case err != nil:
		return err
	case tooLong != nil:
		d.rejected.Add(engine.ReasonKeyTooLong, len(samples)+exemplars+histograms, tooLong)
		return nil
	}
	d.exemplars.add(exemplars, ls)
	d.histograms.add(histograms, ls)
	d.addSeries(ls, samples)
	return nil
}

// labelV1 decodes a prometheus.Label.
func (d *decoder) labelV1(msg field) error {
	if err := msg.want(wireBytes); err != nil {
		return err
	}
	var p pair
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return err
		}
		rest = next
		switch f.num {
		case 1:
			p.name, err = view(f.bytes), f.want(wireBytes)
		case 2:
			p.value, err = view(f.bytes), f.want(wireBytes)
		}
		if err != nil {
			return err
		}
	}
	d.pairs = append(d.pairs, p)
	return nil
}

// sampleFields says which fields of a sample are known.
type sampleFields uint64

const (
	wireV1 sampleFields = 2 // value, timestamp
	wireV2 sampleFields = 3 // value, timestamp, start timestamp
)

// sample decodes a sample, whose first fields are the same in both protocols,
// and returns its start timestamp.
func (d *decoder) sample(msg field, known sampleFields) (start int64, err error) {
	if err := msg.want(wireBytes); err != nil {
		return 0, err
	}
	var s engine.Sample
	for rest := msg.bytes; len(rest) > 0; {
		f, next, err := cutField(rest)
		if err != nil {
			return 0, err
		}
		rest = next
		switch {
		case f.num > uint64(known):
		case f.num == 1:
			s.V, err = math.Float64frombits(f.value), f.want(wireFixed64)
		case f.num == 2:
			s.T, err = int64(f.value), f.want(wireVarint)
		case f.num == 3:
			start, err = int64(f.value), f.want(wireVarint)
		}
		if err != nil {
			return 0, err
		}
	}
	d.addSample(s)
	return start, nil
}
