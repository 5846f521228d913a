package e2e

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// TestTimes writes samples where the stored format has its joints, and reads
// every range that begins and ends on, before or after one of them.
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
	points := make([]point, len(times))
	for i, time := range times {
		points[i] = at(time, float64(i)+0.5)
	}
	for _, open := range openBackends() {
		b := open(t)
		a := startAdapter(t, b, "--write.max-future=0")
		series := sent(labels.FromStrings("__name__", "times"), points...)
		series.points = slices.Clone(points)
		slices.Reverse(series.points) // in no order that could help
		remoteWrite1().mustSend(t, a.url("/write"), series)
		for _, as := range answers() {
			t.Run(b.name+"/"+as.String(), func(t *testing.T) { checkRanges(t, a, as, points) })
		}
		a.terminate(t)
	}
}

// checkRanges compares all ranges around points with what a list gives.
func checkRanges(t *testing.T, a *adapter, as answer, points []point) {
	ends := []int64{math.MinInt64, -1, math.MaxInt64}
	for _, p := range points {
		ends = append(ends, p.t-1, p.t, p.t+1)
	}
	ms := mustMatchers(t, "__name__", "=", "times")
	for _, mint := range ends {
		queries := make([]query, len(ends))
		for i, maxt := range ends {
			queries[i] = query{mint, maxt, ms}
		}
		results, err := read(a.url("/read"), as, queries...)
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range queries {
			want := q.selectFrom([]timeSeries{{labels.FromStrings("__name__", "times"), points}})
			if d := diff(results[i], want); d != "" {
				t.Errorf("[%d, %d]: %s", q.mint, q.maxt, d)
			}
		}
	}
}

// TestLastWriteWins writes the same times several times, in one request and in
// several, now and long ago, and over a restart.
func TestLastWriteWins(t *testing.T) {
	for _, open := range openBackends() {
		b := open(t)
		t.Run(b.name, func(t *testing.T) {
			a := startAdapter(t, b)
			o := overwritten{a, []int64{0, nowMillis() - 100*24*3_600_000, nowMillis() - 9*3_600_000, nowMillis()}}
			o.write(t, remoteWrite1(), 3, 1, 2)
			o.check(t, 2)
			o.write(t, remoteWrite2(), 1)
			o.check(t, 1)
			a.terminate(t)
			a.rerun(t)
			o.check(t, 1)
			o.write(t, remoteWrite2(), 7, math.Float64frombits(value.NormalNaN), 0)
			o.check(t, 0)
		})
	}
}

// overwritten is a series with samples at some times, all of the same value.
type overwritten struct {
	*adapter
	times []int64
}

func (o overwritten) labels() labels.Labels { return labels.FromStrings("__name__", "overwritten") }

// points returns each value at each time.
func (o overwritten) points(values ...float64) []point {
	var points []point
	for _, time := range o.times {
		for _, v := range values {
			points = append(points, at(time, v))
		}
	}
	return points
}

// write writes the values one after the other, in one request.
func (o overwritten) write(t *testing.T, p protocol, values ...float64) {
	t.Helper()
	p.mustSend(t, o.url("/write"), sent(o.labels(), o.points(values...)...))
}

// check wants the value v everywhere.
func (o overwritten) check(t *testing.T, v float64) {
	t.Helper()
	q := query{0, math.MaxInt64, mustMatchers(t, "__name__", "=", "overwritten")}
	for _, as := range answers() {
		got := mustRead(t, o.url("/read"), as, q)
		if d := diff(got, []timeSeries{{o.labels(), o.points(v)}}); d != "" {
			t.Errorf("%v: want %g everywhere: %s", as, v, d)
		}
	}
}

// awkwardLabels are label sets that a text key has trouble with.
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
	for _, open := range openBackends() {
		for _, args := range [][]string{nil, {"--schema.resource-label=podname", "--schema.resource-label=host"}} {
			b := open(t)
			t.Run(fmt.Sprintf("%s/%d resource labels", b.name, len(args)), func(t *testing.T) {
				a := startAdapter(t, b, args...)
				var all []timeSeries
				var request []sentSeries
				for i, ls := range awkwardLabels() {
					all = append(all, timeSeries{ls, []point{at(nowMillis(), float64(i)+1)}})
					request = append(request, sent(ls, all[i].points...))
				}
				remoteWrites()[len(args)/2].mustSend(t, a.url("/write"), request...)
				sortSeries(all)
				for _, as := range answers() {
					checkLabels(t, a, as, all)
				}
				a.terminate(t)
			})
		}
	}
}

// checkLabels compares what matchers find with what upstream's matchers say of
// each series.
func checkLabels(t *testing.T, a *adapter, as answer, all []timeSeries) {
	var queries []query
	for _, m := range labelMatchers(all) {
		queries = append(queries, query{0, math.MaxInt64, m})
	}
	results, err := read(a.url("/read"), as, queries...)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range queries {
		if d := diff(results[i], q.selectFrom(all)); d != "" {
			t.Errorf("%v %v: %s", as, q.matchers, d)
		}
	}
	checkStream(t, a.url("/read"), query{0, math.MaxInt64, mustMatchers(t, "__name__", "=~", ".+")})
}

// labelMatchers returns selectors of each label of each series.
func labelMatchers(all []timeSeries) (ms [][]*labels.Matcher) {
	for _, s := range all {
		s.labels.Range(func(l labels.Label) {
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
