package protocol

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// TestTimes writes samples around the boundaries of the stored format, and reads every
// range that begins and ends on, before or after one of them.
func TestTimes(t *testing.T) {
	const window, indexPeriod, base = int64(1) << 23, int64(1) << 29, int64(1) << 32
	times := []int64{
		0, 1,
		window - 1, window,
		indexPeriod - 1, indexPeriod,
		base - 1, base, base + 1, base + window - 1,
		400*base - 1, 400 * base, // within the clock's lifetime
		9999999999999 - 1, 9999999999999, // the last that can be stored
	}
	points := make([]harness.Point, len(times))
	for i, time := range times {
		points[i] = harness.PointAt(time, float64(i)+0.5)
	}
	for _, open := range harness.Backends() {
		b := open(t)
		a := harness.StartAdapter(t, b, "--write.max-future=0")
		series := harness.SeriesOf(labels.FromStrings("__name__", "times"), points...)
		series.Points = slices.Clone(points)
		slices.Reverse(series.Points) // in no order that could help
		harness.RemoteWrite1().MustSend(t, a.URL("/write"), series)
		for _, as := range harness.AnswerTypes() {
			t.Run(b.Name+"/"+as.String(), func(t *testing.T) { checkRanges(t, a, as, points) })
		}
		a.Terminate(t)
	}
}

// checkRanges compares all ranges around points with what a list gives.
func checkRanges(t *testing.T, a *harness.Adapter, as prompb.ReadRequest_ResponseType, points []harness.Point) {
	ends := []int64{math.MinInt64, -1, math.MaxInt64}
	for _, p := range points {
		ends = append(ends, p.T-1, p.T, p.T+1)
	}
	ms := harness.MustMatchers(t, "__name__", "=", "times")
	for _, mint := range ends {
		queries := make([]harness.Query, len(ends))
		for i, maxt := range ends {
			queries[i] = harness.Query{Mint: mint, Maxt: maxt, Matchers: ms}
		}
		results, err := harness.Read(a.URL("/read"), as, queries...)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			want := q.SelectFrom([]harness.TimeSeries{{Labels: labels.FromStrings("__name__", "times"), Points: points}})
			if d := harness.DiffSeries(results[i], want); d != "" {
				t.Errorf("[%d, %d]: %s", q.Mint, q.Maxt, d)
			}
		}
	}
}

// TestLastWriteWins writes the same times several times, in one request and in
// several, now and long ago, and over a restart.
func TestLastWriteWins(t *testing.T) {
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			a := harness.StartAdapter(t, b)
			o := overwritten{a, []int64{0, harness.NowMillis() - 100*24*3_600_000, harness.NowMillis() - 9*3_600_000, harness.NowMillis()}}
			o.write(t, harness.RemoteWrite1(), 3, 1, 2)
			o.check(t, 2)
			o.write(t, harness.RemoteWrite2(), 1)
			o.check(t, 1)
			a.Terminate(t)
			a.Rerun(t)
			o.check(t, 1)
			o.write(t, harness.RemoteWrite2(), 7, math.Float64frombits(value.NormalNaN), 0)
			o.check(t, 0)
		})
	}
}

// overwritten is a series with samples at some times, all of the same value.
type overwritten struct {
	*harness.Adapter
	times []int64
}

func (o overwritten) labels() labels.Labels { return labels.FromStrings("__name__", "overwritten") }

// points returns each value at each time.
func (o overwritten) points(values ...float64) []harness.Point {
	var points []harness.Point
	for _, time := range o.times {
		for _, v := range values {
			points = append(points, harness.PointAt(time, v))
		}
	}
	return points
}

// write writes the values one after the other, in one request.
func (o overwritten) write(t *testing.T, p harness.Protocol, values ...float64) {
	t.Helper()
	p.MustSend(t, o.URL("/write"), harness.SeriesOf(o.labels(), o.points(values...)...))
}

// check wants the value v everywhere.
func (o overwritten) check(t *testing.T, v float64) {
	t.Helper()
	q := harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "overwritten")}
	for _, as := range harness.AnswerTypes() {
		got := harness.MustRead(t, o.URL("/read"), as, q)
		if d := harness.DiffSeries(got, []harness.TimeSeries{{Labels: o.labels(), Points: o.points(v)}}); d != "" {
			t.Errorf("%v: want %g everywhere: %s", as, v, d)
		}
	}
}

// awkwardLabels are label sets that are difficult for a text key.
func awkwardLabels() []labels.Labels {
	long := strings.Repeat("long,", 400)
	return []labels.Labels{
		labels.FromStrings("__name__", "edge"),
		labels.FromStrings("__name__", "edge", "job", "x"),
		labels.FromStrings("__name__", "edge", "host", "h", "podname", "p"),
		labels.FromStrings("__name__", "edge", "host", "h"),
		labels.FromStrings("__name__", "edge", "podname", "h"),
		labels.FromStrings("__name__", "edge", "A", "sorts before the name"),
		labels.FromStrings("__name__", "edge", "1297080123392", "looks like a base"),
		labels.FromStrings("__name__", "edge", "a", "1297080123392"),
		labels.FromStrings("__name__", "edge", "a,b", "c=d", "a=b", "c,d"),
		labels.FromStrings("__name__", "edge", "nul", "a\x00b", "nl", "a\nb", "bs", `a\b\,\n`),
		labels.FromStrings("__name__", "edge", "a", "b,c=d"),
		labels.FromStrings("__name__", "edge", "a", "b", "c", "d"),
		labels.FromStrings("__name__", "edge", "hash", "#", "hash2", `\#`),
		labels.FromStrings("__name__", "edge", "dotted.name", "ä€😀", "space d", " "),
		labels.FromStrings("__name__", "edge", "long", long),
		labels.FromStrings("__name__", "edge", "long", long+"longer"),
		labels.FromStrings("__name__", "1297080123392", "edge", "1"),
		labels.FromStrings("__name__", "a,b=c\\d\ne\x00f", "edge", "1"),
		labels.FromStrings("__name__", "\xf4\x8f\xbf\xbf", "edge", "the last rune"),
	}
}

// TestLabels writes awkward label sets and finds each by each of its labels, in
// every way to match, with resource labels and without.
func TestLabels(t *testing.T) {
	for _, open := range harness.Backends() {
		for _, args := range [][]string{nil, {"--schema.resource-label=podname", "--schema.resource-label=host"}} {
			b := open(t)
			t.Run(fmt.Sprintf("%s/%d resource labels", b.Name, len(args)), func(t *testing.T) {
				a := harness.StartAdapter(t, b, args...)
				var all []harness.TimeSeries
				var request []harness.SentSeries
				for i, ls := range awkwardLabels() {
					all = append(all, harness.TimeSeries{Labels: ls, Points: []harness.Point{harness.PointAt(harness.NowMillis(), float64(i)+1)}})
					request = append(request, harness.SeriesOf(ls, all[i].Points...))
				}
				harness.RemoteWrites()[len(args)/2].MustSend(t, a.URL("/write"), request...)
				harness.SortSeries(all)
				for _, as := range harness.AnswerTypes() {
					checkLabels(t, a, as, all)
				}
				a.Terminate(t)
			})
		}
	}
}

// checkLabels compares what matchers find with what upstream's matchers say of
// each series.
func checkLabels(t *testing.T, a *harness.Adapter, as prompb.ReadRequest_ResponseType, all []harness.TimeSeries) {
	var queries []harness.Query
	for _, m := range labelMatchers(all) {
		queries = append(queries, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: m})
	}
	results, err := harness.Read(a.URL("/read"), as, queries...)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range queries {
		if d := harness.DiffSeries(results[i], q.SelectFrom(all)); d != "" {
			t.Errorf("%v %v: %s", as, q.Matchers, d)
		}
	}
	harness.CheckStream(t, a.URL("/read"), harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=~", ".+")})
}

// labelMatchers returns selectors of each label of each series.
func labelMatchers(all []harness.TimeSeries) (ms [][]*labels.Matcher) {
	for _, s := range all {
		s.Labels.Range(func(l labels.Label) {
			for _, kind := range []labels.MatchType{labels.MatchEqual, labels.MatchNotEqual} {
				ms = append(ms, []*labels.Matcher{labels.MustNewMatcher(kind, l.Name, l.Value)})
			}
			first := string([]rune(l.Value)[:1])
			for _, kind := range []labels.MatchType{labels.MatchRegexp, labels.MatchNotRegexp} {
				m := labels.MustNewMatcher(kind, l.Name, regexp.QuoteMeta(first)+".*")
				ms = append(ms, []*labels.Matcher{m}, []*labels.Matcher{m, labels.MustNewMatcher(labels.MatchEqual, "edge", "")})
			}
			ms = append(ms, []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, l.Name, "")})
		})
	}
	return ms
}
