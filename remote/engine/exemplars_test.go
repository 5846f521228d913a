package engine_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/series"
)

func newExemplar(t int64, v float64, pairs ...string) exemplar.Exemplar {
	return exemplar.Exemplar{Labels: labels.FromStrings(pairs...), Value: v, Ts: t, HasTs: true}
}

// describeExemplars writes results for people, one series a line.
func describeExemplars(results []exemplar.QueryResult) string {
	var b strings.Builder
	for _, r := range results {
		b.WriteString(r.SeriesLabels.String())
		for _, x := range r.Exemplars {
			fmt.Fprintf(&b, " %s=%016x@%d", x.Labels, math.Float64bits(x.Value), x.Ts-someTime)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestExemplars(t *testing.T) {
	a, b, c := labels.FromStrings("__name__", "a"), labels.FromStrings("__name__", "b", "z", ","), labels.FromStrings("__name__", "c")
	before := someTime - 2*series.Period
	nan := math.Float64frombits(0x7ff0000000000002)
	for _, backend := range backends() {
		t.Run(backend.name, func(t *testing.T) {
			clock := newClock(someTime)
			f := openOn(t, backend.open(t, clock), clock)
			f.append(t,
				ingest.Series{Labels: b, Exemplars: []exemplar.Exemplar{newExemplar(someTime+2, 2, "trace", "two"), newExemplar(someTime, nan, "trace", "one")}},
				ingest.Series{Labels: a, Samples: []ingest.Sample{{T: someTime}}, Exemplars: []exemplar.Exemplar{newExemplar(someTime, math.Copysign(0, -1), "x", "1", "y", ""), newExemplar(before, 1), newExemplar(someTime, 1, "x", "2")}},
				ingest.Series{Labels: c, Exemplars: []exemplar.Exemplar{newExemplar(someTime+3, 5)}},
			)
			// The same again is the same.
			f.append(t, ingest.Series{Labels: b, Exemplars: []exemplar.Exemplar{newExemplar(someTime, nan, "trace", "one")}})

			tests := []struct {
				name       string
				start, end int64
				selectors  [][]*labels.Matcher
				want       string
			}{
				{"one series", someTime, someTime + 2, [][]*labels.Matcher{{match("__name__", "b")}},
					`{__name__="b", z=","} {trace="one"}=7ff0000000000002@0 {trace="two"}=4000000000000000@2` + "\n"},
				{"both ends belong to it", someTime, someTime, [][]*labels.Matcher{{match("__name__", "b")}},
					`{__name__="b", z=","} {trace="one"}=7ff0000000000002@0` + "\n"},
				{"several selectors, each series once", someTime, someTime + 9, [][]*labels.Matcher{{match("__name__", "c")}, {match("__name__", "a")}, {match("__name__", "c")}},
					`{__name__="a"} {x="1", y=""}=8000000000000000@0 {x="2"}=3ff0000000000000@0` + "\n" + `{__name__="c"} {}=4014000000000000@3` + "\n"},
				{"long ago", 0, math.MaxInt64, [][]*labels.Matcher{{match("__name__", "a")}},
					fmt.Sprintf(`{__name__="a"} {}=3ff0000000000000@%d {x="1", y=""}=8000000000000000@0 {x="2"}=3ff0000000000000@0`+"\n", -2*series.Period)},
				{"nothing", someTime + 4, someTime + 9, [][]*labels.Matcher{{match("__name__", "b")}}, ""},
				{"backwards", someTime + 4, someTime, [][]*labels.Matcher{{match("__name__", "b")}}, ""},
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					q, err := f.ExemplarQuerier(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					results, err := q.Select(tt.start, tt.end, tt.selectors...)
					if got := describeExemplars(results); err != nil || got != tt.want {
						t.Errorf("found, %v\n%swant\n%s", err, got, tt.want)
					}
				})
			}
			if found := f.collect(t, everything()); len(found) != 1 || len(found[0].Samples) != 1 {
				t.Errorf("the samples are %v", found)
			}
		})
	}
}

func TestExemplarLimit(t *testing.T) {
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSamples = 2 })
	x := []exemplar.Exemplar{newExemplar(someTime, 1), newExemplar(someTime, 2), newExemplar(someTime, 3)}
	f.append(t, ingest.Series{Labels: labels.FromStrings("__name__", "a"), Exemplars: x})
	q, err := f.ExemplarQuerier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if results, err := q.Select(someTime, someTime, []*labels.Matcher{match("__name__", "a")}); !errors.Is(err, reader.ErrLimit) {
		t.Errorf("%v, %v, want a limit", results, err)
	}
}

// TestExemplarParts: with a limit the greatest exemplar of each part of the time comes back, of whatever series it is.
func TestExemplarParts(t *testing.T) {
	const parts, length, n = 7, 1000, 500
	f := openFixture(t, func(c *engine.Config) { c.Limits.MaxSamples = parts })
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[int]string)
	greatest := make(map[int]float64)
	var batch []ingest.Series
	for _, name := range []string{"a", "b"} {
		s := ingest.Series{Labels: labels.FromStrings("__name__", name)}
		for i := range n {
			x := newExemplar(someTime+random.Int64N(parts*length), random.NormFloat64(), "trace", fmt.Sprint(i))
			s.Exemplars = append(s.Exemplars, x)
			part := int(x.Ts-someTime) / length
			if best, ok := greatest[part]; !ok || x.Value > best {
				greatest[part], want[part] = x.Value, fmt.Sprintf("%s %d %v", s.Labels, x.Ts, x)
			}
		}
		batch = append(batch, s)
	}
	f.append(t, batch...)
	asked := &reader.ExemplarLimit{Max: parts}
	q, err := f.ExemplarQuerier(reader.WithExemplarLimit(t.Context(), asked))
	if err != nil {
		t.Fatal(err)
	}
	results, err := q.Select(someTime, someTime+parts*length-1, []*labels.Matcher{match("__name__", "a")}, []*labels.Matcher{match("__name__", "b")})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int]string)
	for _, r := range results {
		for _, x := range r.Exemplars {
			got[int(x.Ts-someTime)/length] = fmt.Sprintf("%s %d %v", r.SeriesLabels, x.Ts, x)
		}
	}
	if asked.Found != 2*n || !maps.Equal(got, want) {
		t.Errorf("of %d there are\n%v\nwant of %d\n%v", asked.Found, got, 2*n, want)
	}
}

func TestAppendRejectsExemplars(t *testing.T) {
	long := strings.Repeat("ä", 65)
	tests := []struct {
		name    string
		bad     exemplar.Exemplar
		reason  ingest.Reason
		message string
	}{
		{"no time", exemplar.Exemplar{Value: 1}, ingest.ReasonExemplar, "no timestamp"},
		{"time 0", newExemplar(0, 1), ingest.ReasonExemplar, "no timestamp"},
		{"before time", newExemplar(-1, 1), ingest.ReasonTime, "timestamp -1 "},
		{"duplicate", exemplar.Exemplar{Labels: raw("a", "b", "a", "c"), Ts: someTime, HasTs: true}, ingest.ReasonExemplar, `"a" is there twice`},
		{"bad UTF-8", newExemplar(someTime, 1, "a", "\xff"), ingest.ReasonExemplar, "UTF-8"},
		{"long", newExemplar(someTime, 1, long, long[:len(long)-2]), ingest.ReasonExemplar, "129 characters"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := openFixture(t)
			var rejected ingest.Rejected
			batch := []ingest.Series{{
				Labels:    labels.FromStrings("__name__", "up"),
				Samples:   []ingest.Sample{{T: someTime}},
				Exemplars: []exemplar.Exemplar{newExemplar(someTime, 1, strings.Repeat("ä", 64), strings.Repeat("ä", 64)), tt.bad},
			}}
			stored, err := f.Append(t.Context(), batch, &rejected)
			if err != nil || stored != (ingest.Stored{Samples: 1, Exemplars: 1}) {
				t.Errorf("stored %+v, error %v", stored, err)
			}
			err = rejected.Err()
			if err == nil || rejected.Samples[tt.reason] != 1 || !strings.Contains(err.Error(), tt.message) || !strings.Contains(err.Error(), `"up"`) {
				t.Errorf("rejected %v: %v, want one for %s that says %q", rejected.Samples, err, tt.reason, tt.message)
			}
		})
	}
}

// An exemplar that the store has not taken is not counted, and comes again.
func TestExemplarStoreFailure(t *testing.T) {
	f := openFixture(t)
	calls := 0
	f.store.onApply = func(table bucketstore.Table, _ []bucketstore.Mutation) error {
		if table != bucketstore.Metric {
			return nil
		}
		if calls++; calls == 2 { // after the samples
			return &bucketstore.RowsError{Failed: map[int]error{0: errStore}}
		}
		return nil
	}
	batch := []ingest.Series{
		{Labels: labels.FromStrings("__name__", "a"), Samples: []ingest.Sample{{T: someTime}}, Exemplars: []exemplar.Exemplar{newExemplar(someTime, 1), newExemplar(someTime, 2)}},
		{Labels: labels.FromStrings("__name__", "b"), Exemplars: []exemplar.Exemplar{newExemplar(someTime, 1)}},
	}
	var rejected ingest.Rejected
	stored, err := f.Append(t.Context(), batch, &rejected)
	if err == nil || !strings.Contains(err.Error(), errStore.Error()) || stored != (ingest.Stored{Samples: 1, Exemplars: 1}) {
		t.Errorf("stored %+v, error %v", stored, err)
	}
	f.store.onApply = nil
	f.append(t, batch...)
}
