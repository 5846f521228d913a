package history

import (
	"errors"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// unitsOf returns units of a source that does not say which times it has.
func unitsOf(sel Selection, g grid) (units []Unit, damaged []error, err error) {
	if sel.Mint < 0 {
		return nil, nil, errors.New("--start is missing: the source does not say when its samples begin")
	}
	sel.Maxt = min(sel.Maxt, time.Now().UnixMilli())
	for t := sel.Mint; t <= sel.Maxt; {
		start, limit := g.at(t)
		if u, ok := g.unit(start, 0, sel); ok {
			units = append(units, u)
		}
		t = limit
	}
	return units, nil, nil
}

// named returns the selectors, at least one, for a source that wants a matcher on a label. Series without a metric name are asked for, too:
// they can never be stored, and are counted and named.
func (s Selection) named() [][]*labels.Matcher {
	if len(s.Matchers) > 0 {
		return s.Matchers
	}
	return [][]*labels.Matcher{
		{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")},
		{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "")},
	}
}

// A temporarySet is a set of a source that may answer another time: its errors are Temporary.
type temporarySet struct{ storage.ChunkSeriesSet }

func (s temporarySet) Err() error {
	if err := s.ChunkSeriesSet.Err(); err != nil {
		return &Temporary{err}
	}
	return nil
}

// A listSeries is a series in memory.
type listSeries struct {
	labels labels.Labels
	chunks []chunks.Meta
}

// Labels implements storage.ChunkSeries.
func (s *listSeries) Labels() labels.Labels { return s.labels }

func (s *listSeries) Iterator(chunks.Iterator) chunks.Iterator {
	return storage.NewListChunkSeriesIterator(s.chunks...)
}
