package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/influxdata/line-protocol/v2/lineprotocol"
	"github.com/prometheus/prometheus/model/labels"
)

// Precisions are the units of the timestamps of line protocol, by their names in InfluxDB.
var Precisions = map[string]lineprotocol.Precision{"ns": lineprotocol.Nanosecond, "us": lineprotocol.Microsecond, "ms": lineprotocol.Millisecond, "s": lineprotocol.Second}

// NewInflux returns a text in the line protocol of InfluxDB: that in a file, or that of in if path is "-". A
// field becomes the series <measurement>_<field>, or <measurement> if the field is value, with the tags as labels; other characters than Prometheus' own in these names become _, booleans
// 1 and 0. Fields that are texts are left out and counted. Times are cut to milliseconds. logger takes what of the text is there twice.
func NewInflux(path string, in io.Reader, precision lineprotocol.Precision, sel Selection, logger log.Logger) (*Text, error) {
	counted := false // the text is parsed more than once
	return newText(func(ctx context.Context, text []byte, fn func(t int64, v float64, s textSample) error) error {
		p := influxParser{Decoder: lineprotocol.NewDecoderWithBytes(text), precision: precision}
		err := p.each(ctx, fn)
		if err == nil && p.texts > 0 && !counted {
			counted = true
			level.Warn(logger).Log("msg", "fields that are texts are left out", "file", path, "fields", p.texts, "first_series", p.firstText)
		}
		return err
	}, path, in, sel, logger)
}

// An influxParser parses line protocol.
type influxParser struct {
	*lineprotocol.Decoder
	precision lineprotocol.Precision
	// line has the fields of a line, and tags are its tags, as labels. prefix is what keys of its series begin with.
	line                []influxField
	measurement, prefix []byte
	tags                []labels.Label
	// texts counts fields that are texts, the first of which is of firstText.
	texts     int
	firstText string
	builder   labels.ScratchBuilder
	key       []byte
	// at is the field whose sample is delivered.
	at string
}

// An influxField is a field that is a number.
type influxField struct {
	name  string
	value float64
}

// Key implements textSample.
func (p *influxParser) Key() []byte {
	p.key = append(append(p.key[:0], p.prefix...), p.at...)
	return p.key
}

// Labels implements textSample.
func (p *influxParser) Labels(ls *labels.Labels) {
	p.builder.Reset()
	p.builder.Add(labels.MetricName, p.name(p.at))
	for _, l := range p.tags {
		p.builder.Add(l.Name, l.Value)
	}
	p.builder.Sort()
	*ls = p.builder.Labels()
}

// name returns that of the series of a field.
func (p *influxParser) name(field string) string {
	if field == "value" {
		return metricName(string(p.measurement))
	}
	return metricName(string(p.measurement) + "_" + field)
}

// metricName and labelName return names in which other characters than Prometheus' own are _.
func metricName(name string) string { return legalName(name, true) }
func labelName(name string) string  { return legalName(name, false) }

func legalName(name string, withColon bool) string {
	legal := []byte(name)
	for i, c := range legal {
		isLetter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || withColon && c == ':'
		if !isLetter && (c < '0' || c > '9') {
			legal[i] = '_'
		}
	}
	if len(legal) == 0 || legal[0] >= '0' && legal[0] <= '9' {
		return "_" + string(legal)
	}
	return string(legal)
}

// each is an eachFunc.
func (p *influxParser) each(ctx context.Context, fn func(t int64, v float64, s textSample) error) error {
	for n := 1; p.Next(); n++ {
		if n%parsedAtOnce == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at, err := p.next()
		for _, f := range p.line {
			if err != nil {
				break
			}
			p.at = f.name
			err = fn(at.UnixMilli(), f.value, p)
		}
		if err != nil && !errors.As(err, new(*lineprotocol.DecodeError)) { // which names the line
			err = fmt.Errorf("entry %d: %w", n, err)
		}
		if err != nil {
			return err
		}
	}
	return p.Err()
}

// next parses a line.
func (p *influxParser) next() (at time.Time, err error) {
	p.line, p.tags, p.prefix = p.line[:0], p.tags[:0], p.prefix[:0]
	measurement, err := p.Measurement()
	if err != nil {
		return at, err
	}
	p.measurement = append(p.measurement[:0], measurement...)
	p.prefix = append(append(p.prefix, measurement...), 0)
	for {
		key, value, err := p.NextTag()
		if err != nil {
			return at, err
		}
		if key == nil {
			break
		}
		p.prefix = append(append(append(append(p.prefix, key...), 0), value...), 0)
		l := labels.Label{Name: labelName(string(key)), Value: string(value)}
		if l.Name == labels.MetricName || slices.ContainsFunc(p.tags, func(other labels.Label) bool { return other.Name == l.Name }) {
			return at, fmt.Errorf("tag %q of %s: another one is the label %s already", key, p.measurement, l.Name)
		}
		p.tags = append(p.tags, l)
	}
	for {
		key, value, err := p.NextField()
		if err != nil {
			return at, err
		}
		if key == nil {
			break
		}
		f := influxField{name: string(key)}
		switch value.Kind() {
		case lineprotocol.Float:
			f.value = value.FloatV()
		case lineprotocol.Int:
			f.value = float64(value.IntV())
		case lineprotocol.Uint:
			f.value = float64(value.UintV())
		case lineprotocol.Bool:
			if value.BoolV() {
				f.value = 1
			}
		default:
			if p.texts++; p.firstText == "" {
				p.firstText = p.name(f.name)
			}
			continue
		}
		p.line = append(p.line, f)
	}
	at, err = p.Time(p.precision, time.Time{})
	if err == nil && at.IsZero() {
		err = errors.New("it has no timestamp")
	}
	return at, err
}
