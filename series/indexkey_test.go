package series_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/promtable/promtable/series"
)

const testPeriod = 2421 * series.IndexPeriod

// indexTexts are label names and values that are prefixes of each other, before
// or after escaping, or too long for an index key.
var indexTexts = []string{
	"a", "a=", "a,", `a\`, `a\\`, "a\x00", "a\n", "a0", "aa", "ab", "b", "=", ",", `\`, "\x00", "0", "1299764477952", "p", "v", "n",
	"__name__", "__name", "__name__x", "\xff", "\xff\xff", `\#`, "#",
	strings.Repeat("x", 400), strings.Repeat("x", 478), strings.Repeat("x", 479), strings.Repeat("x", 512), strings.Repeat("x", 513),
	strings.Repeat("x", 476) + ",", strings.Repeat("x", 477) + ",", strings.Repeat("x", 477) + "," + strings.Repeat("y", 60),
	strings.Repeat("x", 477) + `\` + strings.Repeat("y", 60), strings.Repeat("x", 600), strings.Repeat("x", 600) + "y", strings.Repeat("=", 300),
}

// longestExact is the size of an escaped text up to which a range of an index
// holds nothing but what was asked for.
const longestExact = 478

func escapedSize(text string, isName bool) int {
	n := len(text) + strings.Count(text, `\`) + strings.Count(text, ",") + strings.Count(text, "\n") + strings.Count(text, "\x00")
	if isName {
		n += strings.Count(text, "=")
	}
	return n
}

func TestParsePosting(t *testing.T) {
	for _, schema := range roundTripSchemas {
		s := newSchema(t, schema.resource, schema.tenant)
		random := newRandom(t)
		for _, name := range indexTexts {
			for _, value := range append([]string{""}, indexTexts...) {
				seriesKey := appendSeriesKey(t, s, randomLabels(random))
				for _, period := range []int64{0, series.IndexPeriod, testPeriod, series.MaxTime &^ (series.IndexPeriod - 1)} {
					key := appendPosting(s, name, value, period, seriesKey)
					gotPeriod, gotSeries, err := s.ParsePosting(key)
					if err != nil || gotPeriod != period || !bytes.Equal(gotSeries, seriesKey) {
						t.Fatalf("ParsePosting(%q) = %d, %q, %v", key, gotPeriod, gotSeries, err)
					}
					if got, want := series.AppendPostingIn(nil, key, gotSeries, 2*series.IndexPeriod), appendPosting(s, name, value, 2*series.IndexPeriod, seriesKey); !bytes.Equal(got, want) {
						t.Fatalf("in another period %q is %q, want %q", key, got, want)
					}
				}
			}
		}
	}
}

func TestParsePostingCorrupt(t *testing.T) {
	cases := []struct {
		name   string
		tenant string
		key    string
	}{
		{name: "empty", key: ""},
		{name: "kind only", key: "p"},
		{name: "no period", key: "p,a=b"},
		{name: "no series", key: "p,a=b,1299764477952"},
		{name: "a value row", key: "v,a,1299764477952,b"},
		{name: "a name row", key: "n,1299764477952,a"},
		{name: "kind of two letters", key: "pp,a=b,1299764477952,up"},
		{name: "a base that is no period", key: "p,a=b,1299764477953,up"},
		{name: "12 digits", key: "p,a=b,536870912000,up"},
		{name: "not a digit", key: "p,a=b,129976447795x,up"},
		{name: "tenant missing", tenant: "t", key: "p,a=b,1299764477952,up"},
		{name: "tenant only", tenant: "t", key: "t"},
		{name: "series of no tenant", tenant: "t", key: "t,p,a=b,1299764477952,up"},
		{name: "series of another tenant", tenant: "t", key: "t,p,a=b,1299764477952,u,up"},
		{name: "series of a longer tenant", tenant: "t", key: "t,p,a=b,1299764477952,tt,up"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchema(t, nil, tc.tenant)
			if period, key, err := s.ParsePosting([]byte(tc.key)); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("ParsePosting(%q) = %d, %q, %v, want ErrCorrupt", tc.key, period, key, err)
			}
		})
	}
}

// Different texts have different keys, however long they are.
func TestIndexKeysDiffer(t *testing.T) {
	var s series.Schema
	seen := map[string]string{}
	add := func(what string, key []byte) {
		if other, ok := seen[string(key)]; ok {
			t.Errorf("%.40s and %.40s have the same key %q", what, other, key)
		}
		seen[string(key)] = what
	}
	for _, a := range indexTexts {
		add(fmt.Sprintf("name %q", a), s.AppendNameKey(nil, a, testPeriod))
		for _, b := range indexTexts {
			add(fmt.Sprintf("value %q %q", a, b), s.AppendValueKey(nil, a, b, testPeriod))
			add(fmt.Sprintf("posting %q %q", a, b), appendPosting(s, a, b, testPeriod, []byte("up")))
		}
	}
}

func TestPostingRange(t *testing.T) {
	s := newSchema(t, nil, "team")
	for _, name := range indexTexts {
		r := s.PostingRange(name)
		exact := escapedSize(name, true)+len("=") <= longestExact
		for _, other := range indexTexts {
			for _, value := range append([]string{""}, indexTexts...) {
				for _, period := range []int64{0, testPeriod, series.MaxTime &^ (series.IndexPeriod - 1)} {
					got := r.Contains(appendPosting(s, other, value, period, []byte("team,up")))
					if got != (other == name) && (exact || !got) {
						t.Errorf("range of %.40q holds %.40q=%.40q: %v", name, other, value, got)
					}
				}
			}
		}
		for _, tenant := range []string{"tea", "team2", "team,", "p", "="} {
			if r.Contains(appendPosting(newSchema(t, nil, tenant), name, "v", testPeriod, []byte(tenant+",up"))) {
				t.Errorf("range of %.40q holds postings of tenant %q", name, tenant)
			}
		}
		if r.Contains(s.AppendValueKey(nil, name, "v", testPeriod)) || r.Contains(s.AppendNameKey(nil, name, testPeriod)) {
			t.Errorf("range of %.40q holds other kinds", name)
		}
	}
}

func TestPostingPrefix(t *testing.T) {
	var s series.Schema
	for _, a := range indexTexts {
		r := series.PrefixRange(s.AppendPostingPrefix(nil, a, "v", testPeriod))
		for _, b := range indexTexts {
			if got := r.Contains(appendPosting(s, b, "v", testPeriod, []byte("up"))); got != (a == b) {
				t.Errorf("postings of %.40q hold that of %.40q: %v", a, b, got)
			}
		}
		for _, other := range [][]byte{
			appendPosting(s, a, "v", testPeriod+series.IndexPeriod, []byte("up")),
			appendPosting(s, a, "v2", testPeriod, []byte("up")),
			appendPosting(s, a, "", testPeriod, []byte("up")),
		} {
			if r.Contains(other) {
				t.Errorf("postings of %.40q hold %q", a, other)
			}
		}
	}
}

func TestValueRange(t *testing.T) {
	s, other := newSchema(t, nil, "team"), newSchema(t, nil, "team2")
	for _, prefix := range append([]string{""}, indexTexts...) {
		for _, name := range []string{"a", "a=,", strings.Repeat("x", 600)} {
			r := s.ValueRange(name, prefix, testPeriod)
			exact := escapedSize(prefix, false) <= longestExact
			for _, value := range indexTexts {
				got := r.Contains(s.AppendValueKey(nil, name, value, testPeriod))
				if got != strings.HasPrefix(value, prefix) && (exact || !got) {
					t.Errorf("values from %.40q on hold %.40q: %v", prefix, value, got)
				}
				for _, other := range [][]byte{
					s.AppendValueKey(nil, name, value, testPeriod+series.IndexPeriod),
					s.AppendValueKey(nil, name, value, testPeriod-series.IndexPeriod),
					s.AppendValueKey(nil, name+"x", value, testPeriod),
					s.AppendValueKey(nil, "", value, testPeriod),
					other.AppendValueKey(nil, name, value, testPeriod),
				} {
					if r.Contains(other) {
						t.Errorf("values of %.40q from %.40q on hold %q", name, prefix, other)
					}
				}
			}
		}
	}
}

// The same with texts made at random, where prefixes are common.
func TestValueRangeRandom(t *testing.T) {
	var s series.Schema
	random := newRandom(t)
	for range 20000 {
		value, prefix := randomText(random, 8), randomText(random, 3)
		r := s.ValueRange("l", prefix, testPeriod)
		if got := r.Contains(s.AppendValueKey(nil, "l", value, testPeriod)); got != strings.HasPrefix(value, prefix) {
			t.Fatalf("values from %q on hold %q: %v", prefix, value, got)
		}
	}
}

func TestNameRange(t *testing.T) {
	s := newSchema(t, nil, "team")
	r := s.NameRange(testPeriod)
	for _, name := range indexTexts {
		key := s.AppendNameKey(nil, name, testPeriod)
		if !r.Contains(key) {
			t.Errorf("names lack %.40q", name)
		}
		if period, err := s.ParseNameKey(key); period != testPeriod || err != nil {
			t.Errorf("%.40q is a name of period %d, %v", key, period, err)
		}
		for _, other := range [][]byte{
			s.AppendNameKey(nil, name, testPeriod+series.IndexPeriod),
			s.AppendNameKey(nil, name, testPeriod-series.IndexPeriod),
			newSchema(t, nil, "team2").AppendNameKey(nil, name, testPeriod),
			s.AppendValueKey(nil, name, "v", testPeriod),
			appendPosting(s, name, "v", testPeriod, []byte("team,up")),
		} {
			if r.Contains(other) {
				t.Errorf("names hold %q", other)
			}
		}
	}
}

func TestParseNameKeyCorrupt(t *testing.T) {
	s := newSchema(t, nil, "")
	for _, key := range []string{"", "n", "n,", "n,,a", "n,1299764477952", "n,1299764477953,a", "n,129976447795,a", "n,12997644779521,a", "nn,1299764477952,a", "p,1299764477952,a"} {
		period, err := s.ParseNameKey([]byte(key))
		if wantErr := key != "n,1299764477952"; wantErr != errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%q is a name of period %d, %v", key, period, err)
		}
	}
}

func TestAppendPostingPanics(t *testing.T) {
	for _, period := range []int64{-series.IndexPeriod, -1, 1, series.Window, series.MaxTime} {
		t.Run(fmt.Sprint(period), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			appendPosting(series.Schema{}, "a", "b", period, []byte("up"))
		})
	}
}
