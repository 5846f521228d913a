package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// OpenMetrics writes a selection as OpenMetrics text with timestamps: series by series, each in order of time, without types. The format
// has neither native histograms, staleness markers nor series without a name: they are left out, and counted in Progress.Left.
func OpenMetrics(ctx context.Context, from Source, sel Selection, to io.Writer, report func(Progress)) (p Progress, err error) {
	if err := sel.check(); err != nil {
		return p, err
	}
	set, err := sel.series(ctx, from, sel.Mint, sel.Maxt)
	if err != nil {
		return p, err
	}
	out := bufio.NewWriterSize(to, 1<<16)
	var it chunkenc.Iterator
	var line []byte
	for set.Next() {
		one := set.At()
		head := appendSeries(nil, one.Labels())
		it = clipped{one, sel.Mint, sel.Maxt}.Iterator(it)
		before, hasName := p.Samples, one.Labels().Get(model.MetricNameLabel) != ""
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if !hasName || kind != chunkenc.ValFloat {
				p.Left++
				continue
			}
			t, v := it.At()
			if value.IsStaleNaN(v) {
				p.Left++
				continue
			}
			line = appendValue(append(append(line[:0], head...), ' '), t, v)
			if _, err := out.Write(line); err != nil {
				return p, err
			}
			p.Samples++
		}
		if err := it.Err(); err != nil {
			return p, fmt.Errorf("series %s: %w", one.Labels(), err)
		}
		if p.Samples > before {
			p.Series++
		}
		if report != nil {
			report(p)
		}
	}
	if err := set.Err(); err != nil {
		return p, err
	}
	if _, err := out.WriteString("# EOF\n"); err != nil {
		return p, err
	}
	if err := out.Flush(); err != nil || p.Samples+p.Left > 0 {
		return p, err
	}
	return p, ErrNothing
}

// appendSeries appends the name and the labels of a series. Names that earlier versions of the format do not have are quoted.
func appendSeries(dst []byte, ls labels.Labels) []byte {
	name := ls.Get(model.MetricNameLabel)
	isPlain := model.LegacyValidation.IsValidMetricName(name)
	if isPlain {
		dst = append(dst, name...)
	}
	dst = append(dst, '{')
	start := len(dst)
	if !isPlain {
		dst = appendQuoted(dst, name)
	}
	ls.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel {
			return
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		if model.LegacyValidation.IsValidLabelName(l.Name) {
			dst = append(dst, l.Name...)
		} else {
			dst = appendQuoted(dst, l.Name)
		}
		dst = appendQuoted(append(dst, '='), l.Value)
	})
	return append(dst, '}')
}

var escaped = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func appendQuoted(dst []byte, text string) []byte {
	return append(append(append(dst, '"'), escaped.Replace(text)...), '"')
}

// appendValue appends a value, its time in seconds, and the end of the line.
func appendValue(dst []byte, t int64, v float64) []byte {
	dst = append(strconv.AppendFloat(dst, v, 'g', -1, 64), ' ')
	if t < 0 {
		dst, t = append(dst, '-'), -t
	}
	dst = strconv.AppendInt(dst, t/1000, 10)
	return append(fmt.Appendf(dst, ".%03d", t%1000), '\n')
}
