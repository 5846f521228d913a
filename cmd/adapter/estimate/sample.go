package estimate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
)

const (
	// statsLimit is how many entries each list of status/tsdb has at most.
	statsLimit = 10_000
	// sampledNames is how many metric names are looked at, namedSeries how many series of each.
	sampledNames, namedSeries = 200, 20
	// minFloats is how many samples a series needs so that the size of its chunk says something.
	minFloats = 20
)

// A stat is an entry of status/tsdb.
type stat struct {
	Name  string
	Value float64
}

func sum(stats []stat) (all float64) {
	for _, s := range stats {
		all += s.Value
	}
	return all
}

// sample sets the averages of series: all metric names are looked at if they are few, else
// those of every so many series.
func (s Source) sample(ctx context.Context, m *Measured) error {
	const path = "api/v1/status/tsdb"
	var status struct {
		HeadStats                                           struct{ NumLabelPairs float64 }
		SeriesCountByMetricName, LabelValueCountByLabelName []stat
	}
	if err := s.api(ctx, path, url.Values{"limit": {strconv.Itoa(statsLimit)}}, &status); err != nil {
		return err
	}
	names := status.SeriesCountByMetricName
	if len(names) == 0 || status.HeadStats.NumLabelPairs == 0 {
		return fmt.Errorf("%s has no statistics of labels (seriesCountByMetricName and headStats.numLabelPairs): is this an early version?", s.at(path))
	}
	m.LabelTexts = status.HeadStats.NumLabelPairs + float64(len(status.LabelValueCountByLabelName))
	if listed := sum(names); listed < m.Series*0.9 {
		m.note("the averages are of the metrics with most series only, which have %.0f %%: Prometheus lists no others", 100*listed/m.Series)
	}
	return s.average(ctx, m, choose(names, sampledNames))
}

// choose returns the names of n series, evenly spaced over all, with how many of these they
// have; or all names with all their series if there are no more than n.
func choose(names []stat, n int) (chosen []stat) {
	if len(names) <= n {
		return names
	}
	step, seen, picked := sum(names)/float64(n), 0., 0.
	for _, name := range names {
		seen += name.Value
		before := picked
		if picked = math.Ceil(seen/step - 0.5); picked > before {
			chosen = append(chosen, stat{name.Name, picked - before})
		}
	}
	return chosen
}

// average sets the averages over the series of names, each name as often as its value says.
func (s Source) average(ctx context.Context, m *Measured, names []stat) error {
	var weights, encoded, floats float64
	for _, name := range names {
		found, err := s.series(ctx, name.Name)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue // it has ended meanwhile
		}
		weight := name.Value / float64(len(found))
		for _, ls := range found {
			key, postings, err := s.rowBytes(ls)
			if err != nil {
				m.note("a series that would be refused: %v", err)
				continue
			}
			weights += weight
			m.Labels += weight * float64(ls.Len())
			m.KeyBytes += weight * float64(key)
			m.PostingBytes += weight * float64(postings)
			m.SampledSeries++
		}
		ts, vs, err := s.floats(ctx, found[len(found)/2])
		if err != nil {
			return err
		}
		if len(ts) >= minFloats { // else a native histogram, or a new series
			encoded += name.Value * float64(len(dense.Append(nil, ts, vs)))
			floats += name.Value * float64(len(ts))
			m.SampledFloats += len(ts)
		}
	}
	if weights == 0 {
		return fmt.Errorf("%s: no series was found by the names that it lists", s.URL.Redacted())
	}
	m.Labels, m.KeyBytes, m.PostingBytes = m.Labels/weights, m.KeyBytes/weights, m.PostingBytes/weights
	m.Payload = encoded / floats
	if floats == 0 {
		m.Payload = defaultPayload
		m.note("Prometheus has no series with %d float samples yet: a float is counted with %g bytes", minFloats, defaultPayload)
	}
	return nil
}

// rowBytes returns the sizes of the series key and of the keys of its rows in INDEX.
func (s Source) rowBytes(ls labels.Labels) (key, postings int, err error) {
	seriesKey, err := s.Schema.AppendSeriesKey(nil, ls)
	ls.Range(func(l labels.Label) {
		postings += len(s.Schema.AppendPostingPrefix(nil, l.Name, l.Value, 0)) + len(seriesKey)
	})
	return len(seriesKey), postings, err
}

// series returns up to namedSeries series with a name.
func (s Source) series(ctx context.Context, name string) (found []labels.Labels, err error) {
	const path = "api/v1/series"
	body, err := s.get(ctx, path, url.Values{"match[]": {"{__name__=" + strconv.Quote(name) + "}"}, "limit": {strconv.Itoa(namedSeries)}}, maxSeries)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	for token := json.Token(nil); err == nil && token != "data"; {
		token, err = decoder.Token()
	}
	if err == nil {
		_, err = decoder.Token() // [
	}
	for err == nil && len(found) < namedSeries && decoder.More() {
		var ls labels.Labels
		err = decoder.Decode(&ls)
		found = append(found, ls)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.at(path), err)
	}
	return found, nil
}

// floats returns the float samples of a series in the last window's time. Series with more labels may answer too.
func (s Source) floats(ctx context.Context, ls labels.Labels) (ts []int64, vs []float64, err error) {
	var matchers []string
	ls.Range(func(l labels.Label) {
		matchers = append(matchers, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value).String())
	})
	slices.Sort(matchers)
	query := fmt.Sprintf("{%s}[%dms]", strings.Join(matchers, ","), series.Window)
	var answer struct{ Result model.Matrix }
	if err := s.api(ctx, "api/v1/query", url.Values{"query": {query}}, &answer); err != nil || len(answer.Result) == 0 {
		return nil, nil, err
	}
	values := answer.Result[0].Values
	for _, p := range values[max(0, len(values)-chunk.MaxSamples):] {
		ts, vs = append(ts, int64(p.Timestamp)), append(vs, float64(p.Value))
	}
	return ts, vs, nil
}
