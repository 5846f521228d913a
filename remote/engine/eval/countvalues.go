package eval

import (
	"math"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/annotations"
)

// countValues counts the elements of each group and value at each step. The value is a
// label of the result.
type countValues struct {
	grouper
	label  string
	counts []column
	texts  []byte
}

func newCountValues(p *part, held holding) *countValues {
	return &countValues{grouper: newGrouper(p, held), label: p.valueLabel}
}

func (cv *countValues) add(metric labels.Labels, c *column) error {
	if c.histograms != nil {
		return errUnknown
	}
	group, last := -1, uint64(0)
	for i, has := range c.has {
		if !has {
			continue
		}
		if bits := math.Float64bits(c.values[i]); group < 0 || bits != last {
			last = bits
			cv.texts = strconv.AppendFloat(cv.texts[:0], c.values[i], 'f', -1, 64)
			cv.builder.Reset(metric)
			var isNew bool
			if group, isNew = cv.of(cv.builder.Set(cv.label, string(cv.texts)).Labels()); isNew {
				if err := cv.hold(len(c.has), len(c.has)*pointSize); err != nil {
					return err
				}
				cv.counts = append(cv.counts, newColumn(len(c.has)))
			}
		}
		cv.counts[group].set(i, cv.counts[group].values[i]+1)
	}
	return nil
}

func (cv *countValues) results() ([]result, annotations.Annotations, error) {
	found := make([]result, len(cv.counts))
	for i, c := range cv.counts {
		found[i] = result{cv.metrics[i], c}
	}
	return found, nil, nil
}
