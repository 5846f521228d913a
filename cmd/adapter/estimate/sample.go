package estimate

import (
	"context"
	"encoding/json"
	"fmt"
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
	sampledNames = 200
	namedSeries  = 20
	// minFloats is how many samples a series needs so that the size of its chunk says something.
	minFloats = 20
)

// A stat is an entry of status/tsdb.
type stat struct {
	Name  string
	Value float64
}

// sample sets the averages of series: all metric names are looked at if they are few, else
// those of every so many series.
func (s Source) sample(ctx context.Context, m *Measured) error {
	var status struct {
		HeadStats struct {
			NumLabelPairs float64
		}
		SeriesCountByMetricName, LabelValueCountByLabelName []stat
	}
	if err := s.api(ctx, "api/v1/status/tsdb", url.Values{"limit": {strconv.Itoa(statsLimit)}}, &status); err != nil {
		return err
	}
	if len(status.SeriesCountByMetricName) == 0 || status.HeadStats.NumLabelPairs == 0 {
		return fmt.Errorf("%s has no statistics of labels (seriesCountByMetricName and headStats.numLabelPairs): is this an early version?", s.URL.JoinPath("api/v1/status/tsdb").Redacted())
	}
	m.LabelTexts = status.HeadStats.NumLabelPairs + float64(len(status.LabelValueCountByLabelName))
	listed := 0.
	for _, name := range status.SeriesCountByMetricName {
		listed += name.Value
	}
	if listed < m.Series*0.9 {
		m.note("the averages are of the metrics with most series only, which have %.0f %%: Prometheus lists no others", 100*listed/m.Series)
	}
	return s.average(ctx, m, choose(status.SeriesCountByMetricName, sampledNames))
}

// choose returns the names of n series, evenly spaced over all, with how many of these they
// have; or all names with all their series if there are no more than n.
func choose(names []stat, n int) (chosen []stat) {
	if len(names) <= n {
		return names
	}
	all := 0.
	for _, name := range names {
		all += name.Value
	}
	step, next, seen := all/float64(n), all/float64(n)/2, 0.
	for _, name := range names {
		seen += name.Value
		picks := 0.
		for ; next < seen; next += step {
			picks++
		}
		if picks > 0 {
			chosen = append(chosen, stat{name.Name, picks})
		}
	}
	return chosen
}

// average sets the averages over the series of names, each name as often as its value says.
func (s Source) average(ctx context.Context, m *Measured, names []stat) error {
	var weights, labelCount, keys, postings, bytes, floats float64
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
			key, posting, err := s.rowBytes(ls)
			if err != nil {
				m.note("a series that would be refused: %v", err)
				continue
			}
			weights += weight
			labelCount += weight * float64(ls.Len())
			keys += weight * float64(key)
			postings += weight * float64(posting)
			m.SampledSeries++
		}
		ts, vs, err := s.floats(ctx, found[len(found)/2])
		if err != nil {
			return err
		}
		if len(ts) < minFloats {
			continue // a native histogram, or a new series
		}
		bytes += name.Value * float64(len(dense.Append(nil, ts, vs)))
		floats += name.Value * float64(len(ts))
		m.SampledFloats += len(ts)
	}
	if weights == 0 {
		return fmt.Errorf("%s: no series was found by the names that it lists", s.URL.Redacted())
	}
	m.Labels, m.KeyBytes, m.PostingBytes = labelCount/weights, keys/weights, postings/weights
	m.Payload = defaultPayload
	if floats > 0 {
		m.Payload = bytes / floats
	} else {
		m.note("Prometheus has no series with %d float samples yet: a float is counted with %g bytes", minFloats, defaultPayload)
	}
	return nil
}

// rowBytes returns the sizes of the series key and of the keys of its rows in INDEX.
func (s Source) rowBytes(ls labels.Labels) (key, postings int, err error) {
	seriesKey, err := s.Schema.AppendSeriesKey(nil, ls)
	if err != nil {
		return 0, 0, err
	}
	var prefix []byte
	ls.Range(func(l labels.Label) {
		prefix = s.Schema.AppendPostingPrefix(prefix[:0], l.Name, l.Value, 0)
		postings += len(prefix) + len(seriesKey)
	})
	return len(seriesKey), postings, nil
}

// series returns up to namedSeries series with a name. Early versions of Prometheus have no
// limit, so no more of the answer is read.
func (s Source) series(ctx context.Context, name string) (found []labels.Labels, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	const path = "api/v1/series"
	body, err := s.open(ctx, path, url.Values{"match[]": {"{__name__=" + strconv.Quote(name) + "}"}, "limit": {strconv.Itoa(namedSeries)}})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	decoder := json.NewDecoder(body)
	for token := json.Token(nil); token != "data"; {
		if token, err = decoder.Token(); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.URL.JoinPath(path).Redacted(), err)
		}
	}
	_, err = decoder.Token() // [
	for err == nil && len(found) < namedSeries && decoder.More() {
		var set map[string]string
		if err = decoder.Decode(&set); err == nil {
			found = append(found, labels.FromMap(set))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.URL.JoinPath(path).Redacted(), err)
	}
	return found, nil
}

// floats returns the float samples of a series in the last window's time.
func (s Source) floats(ctx context.Context, ls labels.Labels) (ts []int64, vs []float64, err error) {
	var answer struct{ Result model.Matrix }
	query := fmt.Sprintf("%s[%dms]", selector(ls), series.Window)
	if err := s.api(ctx, "api/v1/query", url.Values{"query": {query}}, &answer); err != nil {
		return nil, nil, err
	}
	if len(answer.Result) == 0 {
		return nil, nil, nil
	}
	values := answer.Result[0].Values
	for _, p := range values[max(0, len(values)-chunk.MaxSamples):] {
		ts, vs = append(ts, int64(p.Timestamp)), append(vs, float64(p.Value))
	}
	return ts, vs, nil
}

// selector returns the selector of a series, which may select others with more labels too.
func selector(ls labels.Labels) string {
	var matchers []string
	ls.Range(func(l labels.Label) {
		name := l.Name
		if !model.LabelName(name).IsValidLegacy() {
			name = strconv.Quote(name)
		}
		matchers = append(matchers, name+"="+strconv.Quote(l.Value))
	})
	slices.Sort(matchers)
	return "{" + strings.Join(matchers, ",") + "}"
}
