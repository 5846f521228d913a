package history

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// NewOpenMetrics returns an OpenMetrics text with timestamps, as promtool tsdb create-blocks-from openmetrics takes it: that in a file, or that of in if path is "-".
// Exemplars are left out. logger takes what of the text is there twice.
func NewOpenMetrics(path string, in io.Reader, sel Selection, logger log.Logger) (*Text, error) {
	return newText(eachOpenMetrics, path, in, sel, logger)
}

// openMetricsSample is the sample at which a parser is.
type openMetricsSample struct{ textparse.Parser }

// Key implements textSample.
func (s openMetricsSample) Key() []byte {
	text, _, _ := s.Series()
	return text
}

// eachOpenMetrics is an eachFunc. The parser takes one line at a time.
func eachOpenMetrics(ctx context.Context, text []byte, fn func(t int64, v float64, s textSample) error) error {
	p := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	sample := openMetricsSample{p}
	for line := 1; ; line++ {
		if line%parsedAtOnce == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && entry == textparse.EntrySeries {
			series, t, v := p.Series()
			if t == nil {
				err = fmt.Errorf("a sample of %s has no timestamp", series)
			} else {
				err = fn(*t, v, sample)
			}
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}
