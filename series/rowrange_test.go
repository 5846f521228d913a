package series_test

import (
	"bytes"
	"testing"

	"github.com/promtable/promtable/series"
)

// awkwardKeys are in order of bytes.
var awkwardKeys = []string{"", "\x00", "\x00\x00", "a", "a\x00", "a\x00\x00", "a\xff", "a\xff\xff", "a\xff\xffb", "b", "b\x00", "\xfe", "\xfe\xff", "\xff", "\xff\x00", "\xff\xff", "\xff\xffx"}

func TestPrefixRange(t *testing.T) {
	limits := map[string]string{
		"": "", "\x00": "\x01", "a": "b", "a\x00": "a\x01", "a\xff": "b", "a\xff\xff": "b", "\xfe\xff": "\xff", "\xff": "", "\xff\xff": "",
	}
	for prefix, limit := range limits {
		r := series.PrefixRange([]byte(prefix))
		if string(r.Start) != prefix || string(r.Limit) != limit {
			t.Errorf("PrefixRange(%q) = %s, want the limit %q", prefix, r, limit)
		}
	}
	for _, prefix := range awkwardKeys {
		given := []byte(prefix)
		r := series.PrefixRange(given)
		for _, key := range awkwardKeys {
			if got, want := r.Contains([]byte(key)), bytes.HasPrefix([]byte(key), []byte(prefix)); got != want {
				t.Errorf("PrefixRange(%q) holds %q: %v", prefix, key, got)
			}
		}
		if got, ok := r.Prefix(); !ok || string(got) != prefix || string(given) != prefix {
			t.Errorf("PrefixRange(%q).Prefix() = %q, %v", prefix, got, ok)
		}
		if r.IsEmpty() {
			t.Errorf("PrefixRange(%q) is empty", prefix)
		}
	}
}

func TestSingleRow(t *testing.T) {
	for _, single := range awkwardKeys {
		r := series.SingleRow([]byte(single))
		for _, key := range awkwardKeys {
			if got := r.Contains([]byte(key)); got != (key == single) {
				t.Errorf("SingleRow(%q) holds %q: %v", single, key, got)
			}
		}
		if _, ok := r.Prefix(); ok || r.IsEmpty() {
			t.Errorf("SingleRow(%q) is a prefix or empty", single)
		}
	}
}

func TestRowRange(t *testing.T) {
	cases := []struct {
		name         string
		start, limit string
		in, out      []string
		empty        bool
		prefix       bool
		text         string
	}{
		{name: "all", in: awkwardKeys, prefix: true, text: `["", ∞)`},
		{name: "from on", start: "b", in: []string{"b", "\xff\xff"}, out: []string{"", "a\xff"}, text: `["b", ∞)`},
		{name: "up to", limit: "b", in: []string{"", "a\xff\xff"}, out: []string{"b", "b\x00", "\xff"}, text: `["", "b")`},
		{name: "both", start: "a\x00", limit: "b", in: []string{"a\x00", "a\xff"}, out: []string{"a", "b"}, text: `["a\x00", "b")`},
		{name: "prefix", start: "a", limit: "b", in: []string{"a", "a\xff"}, out: []string{"", "b"}, prefix: true, text: `["a", "b")`},
		{name: "empty", start: "a", limit: "a", out: awkwardKeys, empty: true, text: `["a", "a")`},
		{name: "reversed", start: "b", limit: "a", out: awkwardKeys, empty: true, text: `["b", "a")`},
		{name: "limit before a longer start", start: "a\x00", limit: "a", out: awkwardKeys, empty: true, text: `["a\x00", "a")`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			r := series.RowRange{Start: []byte(tc.start), Limit: []byte(tc.limit)}
			for _, key := range tc.in {
				if !r.Contains([]byte(key)) {
					t.Errorf("%s lacks %q", r, key)
				}
			}
			for _, key := range tc.out {
				if r.Contains([]byte(key)) {
					t.Errorf("%s holds %q", r, key)
				}
			}
			if r.IsEmpty() != tc.empty {
				t.Errorf("IsEmpty() = %v", r.IsEmpty())
			}
			if _, ok := r.Prefix(); ok != tc.prefix {
				t.Errorf("Prefix() = %v", ok)
			}
			if r.String() != tc.text {
				t.Errorf("String() = %s, want %s", r, tc.text)
			}
		})
	}
	if r := (series.RowRange{}); !r.Contains(nil) || r.IsEmpty() || r.String() != `["", ∞)` {
		t.Errorf("the zero range is %s", r)
	}
}
