package series_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
)

// fuzzSchema is one of four schemas, chosen by the low bits of kind: two of a tenant.
func fuzzSchema(t testing.TB, kind byte, tenant string) series.Schema {
	var resource []string
	if kind&1 != 0 {
		resource = []string{"host", "podname"}
	}
	if kind&2 == 0 {
		tenant = ""
	}
	return newSchema(t, resource, tenant)
}

// addKeys adds keys to the seeds of f with each schema.
func addKeys(f *testing.F, keys ...string) {
	for _, key := range keys {
		for kind := range byte(4) {
			f.Add(kind, []byte(key))
		}
	}
}

func FuzzParseSeriesKey(f *testing.F) {
	addKeys(f, "", "up", "up,a=b", "t,up,a=b,h,p", "t,,a=b,,", `t\,,u\\p,a\=b=c\n\0,\\,\,`, "up,b=1,a=2", `up,a=b\#`, "up,1297080123392=x,,")
	f.Fuzz(func(t *testing.T, kind byte, key []byte) {
		s := fuzzSchema(t, kind, "t")
		ls, err := parseSeriesKey(s, key)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Fatalf("ParseSeriesKey(%q): %v is not ErrCorrupt", key, err)
			}
			return
		}
		if got, err := s.AppendSeriesKey(nil, ls); err != nil || !bytes.Equal(got, key) {
			t.Fatalf("%q parses to %s, which has the key %q, %v", key, ls, got, err)
		}
	})
}

func FuzzParseRowKey(f *testing.F) {
	addKeys(f, "", heroicKey, "up,0000000000000", "t,up,a=b,1297080123392,h,p", `up,a=\\,0004294967296,\\,\,`, `up\,0000000000000,0000000000000`, ",9998683865088")
	f.Fuzz(func(t *testing.T, kind byte, key []byte) {
		s := fuzzSchema(t, kind, "t")
		seriesKey, base, err := s.ParseRowKey(nil, key)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Fatalf("ParseRowKey(%q): %v is not ErrCorrupt", key, err)
			}
			return
		}
		if got := s.AppendRowKey(nil, seriesKey, base); !bytes.Equal(got, key) {
			t.Fatalf("%q parses to %q, %d, which has the key %q", key, seriesKey, base, got)
		}
	})
}

func FuzzParsePosting(f *testing.F) {
	addKeys(f, "", "p,a=b,0000000000000,up,a=b", "t,p,a=b,1299764477952,t,up,a=b,h,p", `p,a\==\,,0000536870912,up,`, `p,a=x\#00,0000000000000,`, "v,a,0000000000000,b")
	f.Fuzz(func(t *testing.T, kind byte, key []byte) {
		period, seriesKey, err := fuzzSchema(t, kind, "t").ParsePosting(key)
		if err != nil {
			if !errors.Is(err, series.ErrCorrupt) {
				t.Fatalf("ParsePosting(%q): %v is not ErrCorrupt", key, err)
			}
			return
		}
		if end := fmt.Sprintf(",%013d,%s", period, seriesKey); !bytes.HasSuffix(key, []byte(end)) {
			t.Fatalf("%q does not end in %q", key, end)
		}
		if period != series.PeriodOf(period) {
			t.Fatalf("%q has the period %d", key, period)
		}
	})
}

func FuzzParseNameKey(f *testing.F) {
	addKeys(f, "", "n,0000000000000,up", "t,n,1299764477952,a", "n,1299764477953,a", `t\,,n,1299764477952,\#`)
	f.Fuzz(func(t *testing.T, kind byte, key []byte) {
		s := fuzzSchema(t, kind, "t")
		period, err := s.ParseNameKey(key)
		if err == nil && period != series.PeriodOf(period) || err != nil && !errors.Is(err, series.ErrCorrupt) {
			t.Fatalf("%q is a name of period %d, %v", key, period, err)
		}
	})
}

func FuzzParseQualifier(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xae, 0x09, 0xc8, 0x00, 0})
	f.Fuzz(func(t *testing.T, qual []byte) {
		delta, err := series.ParseQualifier(qual)
		if (err == nil) != (len(qual) == series.QualifierSize) {
			t.Fatalf("ParseQualifier(%x): %v", qual, err)
		}
		if got := series.AppendQualifier(nil, delta); err == nil && !bytes.Equal(got, qual) {
			t.Fatalf("%x parses to %d, which is %x", qual, delta, got)
		}
	})
}

// FuzzSeriesKey makes a label set of texts: metric name, two labels, a resource.
func FuzzSeriesKey(f *testing.F) {
	for kind := range byte(4) {
		f.Add(kind, "t", "up", "a", "1", "b", "2", "h", uint64(1300000000000))
		f.Add(kind, `,=\`, "", "A", "1297080123392", "1297080123392", "x", "a=b,c", uint64(0))
		f.Add(kind, "\x00", `\`, `l\`, `v\`, "=,", ",=", `\,`, uint64(series.MaxTime))
		f.Add(kind, "t", "东京", "__name_", "\xff", "\n", "\n", "", uint64(1<<32-1))
	}
	f.Fuzz(func(t *testing.T, kind byte, tenant, metric, name1, value1, name2, value2, host string, at uint64) {
		if tenant == "" || len(tenant) > series.MaxTenant {
			if _, err := (series.Schema{}).ForTenant(tenant); err == nil {
				t.Fatalf("a tenant of %d bytes", len(tenant))
			}
			return
		}
		s := fuzzSchema(t, kind, tenant)
		ls := labels.FromMap(map[string]string{name1: value1, name2: value2, "host": host, "__name__": metric})
		ls = labels.NewBuilder(ls).Del("").Labels() // without the empty values, too
		key, err := s.AppendSeriesKey([]byte("dst"), ls)
		if err != nil {
			checkFuzzError(t, tenant, ls, key, err)
			return
		}
		checkSeriesKey(t, s, key[3:], ls)
		ts := int64(at % uint64(series.MaxTime+1))
		base, _ := series.Split(ts)
		checkRowKey(t, s, key[3:], base)
		ls.Range(func(l labels.Label) { checkFuzzIndex(t, s, l, series.PeriodOf(ts), key[3:]) })
	})
}

// checkFuzzError fails unless AppendSeriesKey had a reason for its error.
func checkFuzzError(t *testing.T, tenant string, ls labels.Labels, dst []byte, err error) {
	size := len(tenant)
	ls.Range(func(l labels.Label) { size += len(l.Name) + len(l.Value) })
	tooLong := errors.Is(err, series.ErrKeyTooLong) && 2*size+10 > series.MaxSeriesKey
	noLabels := errors.Is(err, series.ErrLabels) && ls.IsEmpty()
	if string(dst) != "dst" || len(err.Error()) > 1024 || !(tooLong || noLabels) {
		t.Fatalf("%q, %s: %q, %v", tenant, ls, dst, err)
	}
}

// checkFuzzIndex checks the index rows of one label: they can be read, they fit
// and the ranges that are meant to find them do.
func checkFuzzIndex(t *testing.T, s series.Schema, l labels.Label, period int64, seriesKey []byte) {
	posting := appendPosting(s, l.Name, l.Value, period, seriesKey)
	gotPeriod, gotSeries, err := s.ParsePosting(posting)
	if err != nil || gotPeriod != period || !bytes.Equal(gotSeries, seriesKey) {
		t.Fatalf("ParsePosting(%q) = %d, %q, %v", posting, gotPeriod, gotSeries, err)
	}
	value, name := s.AppendValueKey(nil, l.Name, l.Value, period), s.AppendNameKey(nil, l.Name, period)
	for _, key := range [][]byte{posting, value, name} {
		if len(key) > 4096 || bytes.ContainsAny(key, "\x00\n") {
			t.Fatalf("key of %d bytes: %q", len(key), key)
		}
	}
	ranges := []series.RowRange{s.PostingRange(l.Name), s.ValueRange(l.Name, l.Value[:len(l.Value)/2], period), s.NameRange(period)}
	for i, key := range [][]byte{posting, value, name} {
		holds := []bool{ranges[0].Contains(key), ranges[1].Contains(key), ranges[2].Contains(key)}
		if want := []bool{i == 0, i == 1, i == 2}; !slices.Equal(holds, want) {
			t.Fatalf("%q lies in posting, value, name ranges: %v", key, holds)
		}
	}
}
