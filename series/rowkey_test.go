package series_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
)

// heroicKey is the example row that Heroic documents.
const heroicKey = "system,cpu-type=idle,site=gew,system-component=cpu,unit=%,what=cpu-idle-percentage,1297080123392,database.example.com,pod-example-123-abc"

func heroicLabels() labels.Labels {
	return labels.FromStrings("__name__", "system", "cpu-type", "idle", "site", "gew", "system-component", "cpu",
		"unit", "%", "what", "cpu-idle-percentage", "host", "database.example.com", "podname", "pod-example-123-abc")
}

func TestHeroicExample(t *testing.T) {
	s := newSchema(t, []string{"host", "podname"}, "")
	key := appendSeriesKey(t, s, heroicLabels())
	samples := []struct {
		t     int64
		v     float64
		delta uint32
	}{
		{1300000000000, 42, 2919876608},
		{1300001000000, 84, 2920876608},
	}
	for _, sample := range samples {
		base, delta := series.Split(sample.t)
		if got := string(s.AppendRowKey(nil, key, base)); got != heroicKey || delta != sample.delta {
			t.Errorf("t=%d: row %q, delta %d, want %q, %d", sample.t, got, delta, heroicKey, sample.delta)
		}
		if v, err := cell.ParseFloat(cell.AppendFloat(nil, sample.v)); v != sample.v || err != nil {
			t.Errorf("value %v, %v, want %v", v, err, sample.v)
		}
	}
}

// roundTrips are label sets that every schema must give back as they were.
var roundTrips = []struct {
	name   string
	labels []string
}{
	{"name only", []string{"__name__", "up"}},
	{"name and labels", []string{"__name__", "up", "instance", "h:9090", "job", "node"}},
	{"no name", []string{"job", "node"}},
	{"sorts before __name__", []string{"A", "1", "Zone", "2", "__name__", "up"}},
	{"sorts before __name__, no name", []string{"A", "1"}},
	{"longer than __name__", []string{"__name__", "up", "__name__x", "1", "__name_", "2"}},
	{"digits first", []string{"__name__", "0up", "0", "1", "1a", "2"}},
	{"a base as name", []string{"__name__", "1297080123392"}},
	{"a base as label name", []string{"__name__", "up", "1297080123392", "x"}},
	{"a base as value", []string{"__name__", "up", "a", "1297080123392"}},
	{"a base inside a value", []string{"__name__", "up", "a", "x,1297080123392"}},
	{"a base after a comma in a label name", []string{"__name__", "up", "a,1297080123392", "x"}},
	{"comma", []string{"__name__", "a,b", "c,d", "e,f"}},
	{"commas only", []string{"__name__", ",", ",", ",,"}},
	{"equals", []string{"__name__", "a=b", "c=d", "e=f"}},
	{"equals only", []string{"__name__", "=", "=", "="}},
	{"equals at the ends", []string{"=a", "=1=", "a=", "=1=", "__name__", "=u="}},
	{"backslash", []string{"__name__", `a\b`, `c\d`, `e\f`}},
	{"backslash last", []string{"__name__", `a\`, `c\`, `e\`}},
	{"backslashes last", []string{"__name__", `a\\`, `c\\`, `e\\`}},
	{"backslash and comma", []string{"__name__", `a\,`, `c\,\`, `,\,e`}},
	{"backslash and equals", []string{"__name__", `a\=`, `c\=\`, `=\=e`}},
	{"looks escaped", []string{"__name__", `\n`, `\0`, `\n\0\,\=\#`, `\n`, `\\n`}},
	{"newline", []string{"__name__", "a\nb", "c\nd", "\n"}},
	{"NUL", []string{"__name__", "a\x00b", "c\x00d", "\x00", "\x00", "x"}},
	{"unicode", []string{"__name__", "température", "ville", "東京", "🦔", "\u2028"}},
	{"not UTF-8", []string{"__name__", "\xff\xfe", "\x80", "\xc3", "\xff", "\xed\xa0\x80"}},
	{"resources", []string{"__name__", "up", "host", "h", "podname", "p"}},
	{"one resource", []string{"__name__", "up", "podname", "p"}},
	{"resource with equals", []string{"__name__", "up", "host", "a=b", "podname", "="}},
	{"resource with comma", []string{"__name__", "up", "host", "a,b=c,", "podname", ","}},
	{"resource with backslash", []string{"__name__", "up", "host", `\`, "podname", `a\,\`}},
	{"resource like a base", []string{"__name__", "up", "host", "1297080123392", "podname", "0000000000000"}},
	{"resources only", []string{"host", "h", "podname", "p"}},
	{"resource prefix", []string{"__name__", "up", "hos", "1", "host2", "2"}},
}

var roundTripSchemas = []struct {
	name     string
	resource []string
	tenant   string
}{
	{name: "plain"},
	{name: "one resource", resource: []string{"host"}},
	{name: "two resources", resource: []string{"podname", "host"}},
	{name: "tenant", tenant: "team"},
	{name: "awkward tenant", tenant: `,=\` + "\n\x00", resource: []string{"host", "podname"}},
}

func TestSeriesKeyRoundTrip(t *testing.T) {
	for _, schema := range roundTripSchemas {
		s := newSchema(t, schema.resource, schema.tenant)
		keys := map[string]string{}
		for _, tc := range roundTrips {
			t.Run(schema.name+"/"+tc.name, func(t *testing.T) {
				ls := labels.FromStrings(tc.labels...)
				key := appendSeriesKey(t, s, ls)
				if bytes.ContainsAny(key, "\x00\n") {
					t.Errorf("key %q has NUL or newline", key)
				}
				if other, ok := keys[string(key)]; ok {
					t.Errorf("key %q is that of %q too", key, other)
				}
				keys[string(key)] = tc.name
				checkSeriesKey(t, s, key, ls)
				for _, base := range []int64{0, series.Period, 1297080123392, 2328 * series.Period} {
					checkRowKey(t, s, key, base)
				}
			})
		}
	}
}

// checkSeriesKey fails unless key is that of ls.
func checkSeriesKey(t *testing.T, s series.Schema, key []byte, ls labels.Labels) {
	t.Helper()
	got, err := parseSeriesKey(s, key)
	if err != nil || !labels.Equal(got, ls) {
		t.Errorf("ParseSeriesKey(%q) = %s, %v, want %s", key, got, err, ls)
	}
}

// checkRowKey fails unless a row key gives its series key and base back, and
// respects what stands in dst.
func checkRowKey(t *testing.T, s series.Schema, seriesKey []byte, base int64) {
	t.Helper()
	row := s.AppendRowKey([]byte("dst"), seriesKey, base)
	got, gotBase, err := s.ParseRowKey([]byte("dst"), row[3:])
	if err != nil || string(row[:3]) != "dst" || string(got) != "dst"+string(seriesKey) || gotBase != base {
		t.Errorf("ParseRowKey(%q) = %q, %d, %v, want %q, %d", row[3:], got, gotBase, err, "dst"+string(seriesKey), base)
	}
}

// The labels must outlive the key and the scratch space they were parsed with.
func TestParseSeriesKeyOwnership(t *testing.T) {
	var s series.Schema
	ls := labels.FromStrings("__name__", "up", "a", "plain", "b", `esc,aped\`)
	key := appendSeriesKey(t, s, ls)
	b := labels.NewScratchBuilder(0)
	got, err := s.ParseSeriesKey(key, &b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range key {
		key[i] = 'x'
	}
	if _, err := s.ParseSeriesKey([]byte("other,name=label"), &b); err != nil {
		t.Fatal(err)
	}
	if !labels.Equal(got, ls) {
		t.Errorf("labels changed to %s", got)
	}
}

func TestNewSchema(t *testing.T) {
	names := []string{"podname", "host"}
	s := newSchema(t, names, "")
	if got := fmt.Sprint(s.ResourceLabels()); got != "[host podname]" || s.Tenancy() {
		t.Errorf("schema has %s, tenancy %v", got, s.Tenancy())
	}
	s.ResourceLabels()[0] = "changed"
	if names[0] != "podname" || s.ResourceLabels()[0] != "host" {
		t.Error("the schema shares its slice")
	}
	for name, bad := range map[string][]string{
		"empty":    {"host", ""},
		"__name__": {"__name__"},
		"twice":    {"host", "podname", "host"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := series.NewSchema(bad); err == nil {
				t.Errorf("NewSchema(%q) has no error", bad)
			}
		})
	}
}

func TestForTenant(t *testing.T) {
	for _, tenant := range []string{"", strings.Repeat("t", series.MaxTenant+1), strings.Repeat("􏿿", 5000)} {
		if s, err := newSchema(t, nil, "").ForTenant(tenant); err == nil || s.Tenancy() || len(err.Error()) > 1024 {
			t.Errorf("a tenant of %d bytes: %v", len(tenant), err)
		}
	}
	s := newSchema(t, []string{"host"}, "first")
	other, err := s.ForTenant(strings.Repeat("t", series.MaxTenant))
	if err != nil || !other.Tenancy() || fmt.Sprint(other.ResourceLabels()) != "[host]" {
		t.Errorf("resource labels %s, %v", other.ResourceLabels(), err)
	}
	ls := labels.FromStrings("__name__", "up")
	if key := string(appendSeriesKey(t, s, ls)); key != "first,up," {
		t.Errorf("the key of the first tenant is %q", key)
	}
	if got, err := parseSeriesKey(s, appendSeriesKey(t, other, ls)); !errors.Is(err, series.ErrCorrupt) {
		t.Errorf("the key of another tenant is that of %s, %v", got, err)
	}
}

func TestAppendSeriesKeyErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	wild := strings.Repeat("\U0010ffff", 5000)
	cases := []struct {
		name     string
		ls       labels.Labels
		sentinel error
		texts    []string
	}{
		{name: "no labels", ls: labels.EmptyLabels(), sentinel: series.ErrLabels},
		{name: "empty name", ls: rawLabels("", "x", "a", "b"), sentinel: series.ErrLabels, texts: []string{`a="b"`}},
		{name: "empty value", ls: rawLabels("a", "", "b", "c"), sentinel: series.ErrLabels, texts: []string{`b="c"`}},
		{name: "empty metric name", ls: rawLabels("__name__", "", "b", "c"), sentinel: series.ErrLabels},
		{name: "empty resource", ls: rawLabels("__name__", "up", "host", ""), sentinel: series.ErrLabels},
		{name: "empty name, long value", ls: rawLabels("", wild), sentinel: series.ErrLabels},
		{name: "long name, empty value", ls: rawLabels(wild, ""), sentinel: series.ErrLabels},
		{name: "unsorted", ls: rawLabels("b", "1", "a", "2"), sentinel: series.ErrLabels, texts: []string{`"a"`}},
		{name: "name unsorted", ls: rawLabels("a", "1", "__name__", "up"), sentinel: series.ErrLabels},
		{name: "twice", ls: rawLabels("a", "1", "a", "2"), sentinel: series.ErrLabels, texts: []string{`"a"`}},
		{name: "name twice", ls: rawLabels("__name__", "up", "__name__", "down"), sentinel: series.ErrLabels},
		{name: "resource twice", ls: rawLabels("host", "1", "host", "2"), sentinel: series.ErrLabels},
		{name: "long name twice", ls: rawLabels(wild, "1", wild, "2"), sentinel: series.ErrLabels},
		{name: "too long", ls: labels.FromStrings("__name__", "up", "a", long), sentinel: series.ErrKeyTooLong, texts: []string{"up", "1048581", "3072"}},
		{name: "too long and wild", ls: labels.FromStrings("__name__", wild), sentinel: series.ErrKeyTooLong, texts: []string{"20000"}},
		{name: "too long by a resource", ls: labels.FromStrings("__name__", "up", "host", long), sentinel: series.ErrKeyTooLong, texts: []string{"up", "1048579"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchema(t, []string{"host"}, "")
			if tc.name == "too long" || tc.name == "too long and wild" {
				s = newSchema(t, nil, "")
			}
			dst, err := s.AppendSeriesKey([]byte("dst"), tc.ls)
			if string(dst) != "dst" {
				t.Errorf("dst is %.100q", dst)
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, sentinel := range []error{series.ErrLabels, series.ErrKeyTooLong, series.ErrCorrupt} {
				if got := errors.Is(err, sentinel); got != (sentinel == tc.sentinel) {
					t.Errorf("errors.Is(%v, %v) = %v", err, sentinel, got)
				}
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if len(err.Error()) > 1024 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// A key has 3,072 bytes at most, whatever was in dst before, and whatever takes
// the bytes: name, value, escapes, resource or tenant.
func TestMaxSeriesKey(t *testing.T) {
	cases := []struct {
		name     string
		resource []string
		tenant   string
		label    string // takes what is missing
		other    []string
		overhead int // bytes of the key besides that label's value
	}{
		{name: "name", label: "__name__"},
		{name: "value", label: "a", other: []string{"__name__", "up"}, overhead: len("up,a=")},
		{name: "escapes", label: "a", other: []string{"__name__", ",,,,"}, overhead: len(`\,\,\,\,,a=`)},
		{name: "resource", resource: []string{"host", "zone"}, label: "host", other: []string{"__name__", "up"}, overhead: len("up,,")},
		{name: "tenant", tenant: strings.Repeat(",", series.MaxTenant), label: "a", overhead: 2*series.MaxTenant + len(",,a=")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchema(t, tc.resource, tc.tenant)
			dst := make([]byte, 100)
			fits := labels.FromStrings(append(tc.other, tc.label, strings.Repeat("v", series.MaxSeriesKey-tc.overhead))...)
			key, err := s.AppendSeriesKey(dst, fits)
			if err != nil || len(key) != 100+3072 {
				t.Fatalf("key of %d bytes, %v", len(key), err)
			}
			checkSeriesKey(t, s, key[100:], fits)
			long := labels.FromStrings(append(tc.other, tc.label, strings.Repeat("v", series.MaxSeriesKey+1-tc.overhead))...)
			key, err = s.AppendSeriesKey(dst, long)
			if !errors.Is(err, series.ErrKeyTooLong) || !strings.Contains(fmt.Sprint(err), "3073") || len(key) != 100 {
				t.Errorf("key of %d bytes, %v, want ErrKeyTooLong and 3073", len(key)-100, err)
			}
		})
	}
}

// Every row made of the longest parts fits the 4,096 bytes that Bigtable allows.
func TestRowKeyLimit(t *testing.T) {
	const limit = 4096
	s := newSchema(t, []string{"host", "zone"}, strings.Repeat(`\`, series.MaxTenant))
	ls := labels.FromStrings("__name__", strings.Repeat("v", series.MaxSeriesKey-2*series.MaxTenant-len(",,,")))
	key := appendSeriesKey(t, s, ls)
	if len(key) != series.MaxSeriesKey {
		t.Fatalf("key of %d bytes", len(key))
	}
	check := func(what string, key []byte) {
		if t.Helper(); len(key) > limit {
			t.Errorf("%s: %d bytes", what, len(key))
		}
	}
	const lastBase, lastPeriod = series.MaxTime &^ (series.Period - 1), series.MaxTime &^ (series.IndexPeriod - 1)
	check("row", s.AppendRowKey(nil, key, lastBase))
	for _, size := range []int{1, 255, 256, 477, 478, 509, 510, 511, 512, 513, 3000} {
		for _, unit := range []string{"x", ",", "=", "x,", ",x"} {
			text := strings.Repeat(unit, size)
			for _, pair := range [][2]string{{"l", text}, {text, "v"}, {text, text}} {
				what := fmt.Sprintf("%d*%q", size, unit)
				check("posting "+what, appendPosting(s, pair[0], pair[1], lastPeriod, key))
				check("value "+what, s.AppendValueKey(nil, pair[0], pair[1], lastPeriod))
				check("name "+what, s.AppendNameKey(nil, pair[0], lastPeriod))
			}
		}
	}
}

// A text that no Append function writes must not parse: one series, one key.
func TestParseSeriesKeyCorrupt(t *testing.T) {
	cases := []struct {
		name     string
		resource []string
		tenant   string
		key      string
	}{
		{name: "empty", key: ""},
		{name: "unknown escape in name", key: `u\p`},
		{name: "unknown escape in label name", key: `up,a\b=c`},
		{name: "unknown escape in value", key: `up,a=\x`},
		{name: "escaped equals in name", key: `u\=p`},
		{name: "escaped equals in value", key: `up,a=b\=c`},
		{name: "mark of a cut", key: `up,a=b\#0123`},
		{name: "name ends in an escape", key: `up\`},
		{name: "value ends in an escape", key: `up,a=b\`},
		{name: "raw NUL in name", key: "u\x00p"},
		{name: "raw NUL in label name", key: "up,a\x00=b"},
		{name: "raw NUL in value", key: "up,a=\x00"},
		{name: "raw newline", key: "up,a=b\nc"},
		{name: "no label", key: "up,a"},
		{name: "only an escaped equals", key: `up,a\=b`},
		{name: "empty field", key: "up,,a=b"},
		{name: "comma last", key: "up,a=b,"},
		{name: "only a comma", key: ","},
		{name: "empty label name", key: "up,=b"},
		{name: "empty value", key: "up,a="},
		{name: "unsorted", key: "up,b=1,a=2"},
		{name: "twice", key: "up,a=1,a=2"},
		{name: "__name__ in the list", key: "up,__name__=down"},
		{name: "__name__ in the list only", key: ",__name__=up"},
		{name: "a row key", key: "up,a=b,1297080123392"},
		{name: "too long", key: strings.Repeat("x", series.MaxSeriesKey+1)},
		{name: "resource in the list", resource: []string{"host"}, key: "up,host=h,"},
		{name: "resources missing", resource: []string{"a", "b"}, key: "up,v"},
		{name: "resources only, all empty", resource: []string{"a", "b"}, key: ",,"},
		{name: "unknown escape in resource", resource: []string{"host"}, key: `up,h\x`},
		{name: "escaped equals in resource", resource: []string{"host"}, key: `up,h\=x`},
		{name: "raw NUL in resource", resource: []string{"host"}, key: "up,h\x00"},
		{name: "tenant only", tenant: "t", key: "t"},
		{name: "tenant without labels", tenant: "t", key: "t,"},
		{name: "tenant empty", tenant: "t", key: ",up"},
		{name: "another tenant", tenant: "t", key: "u,up"},
		{name: "longer tenant", tenant: "t", key: "tt,up"},
		{name: "tenant with escaped comma", tenant: "t", key: `t\,,up`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchema(t, tc.resource, tc.tenant)
			if ls, err := parseSeriesKey(s, []byte(tc.key)); !errors.Is(err, series.ErrCorrupt) {
				t.Errorf("ParseSeriesKey(%.100q) = %s, %v, want ErrCorrupt", tc.key, ls, err)
			}
		})
	}
}

func TestParseRowKeyCorrupt(t *testing.T) {
	cases := []struct {
		name     string
		resource []string
		key      string
	}{
		{name: "empty", key: ""},
		{name: "base only", key: "1297080123392"},
		{name: "a series key", key: "up,a=b"},
		{name: "a label named as a base", key: "up,1297080123392=x"},
		{name: "12 digits", key: "up,429496729600"},
		{name: "14 digits", key: "up,04294967296000"},
		{name: "base empty", key: "up,"},
		{name: "not a digit", key: "up,129708012339x"},
		{name: "a sign", key: "up,+004294967296"},
		{name: "negative", key: "up,-004294967296"},
		{name: "a space", key: "up, 004294967296"},
		{name: "one past a base", key: "up,1297080123393"},
		{name: "one before a base", key: "up,1297080123391"},
		{name: "an index period", key: "up,0000536870912"},
		{name: "comma escaped", key: `up\,1297080123392`},
		{name: "resource missing", resource: []string{"host"}, key: "up,1297080123392"},
		{name: "one resource of two", resource: []string{"host", "zone"}, key: "up,1297080123392,h"},
		{name: "one resource too many", resource: []string{"host"}, key: "up,1297080123392,h,z"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newSchema(t, tc.resource, "")
			dst, base, err := s.ParseRowKey([]byte("dst"), []byte(tc.key))
			if !errors.Is(err, series.ErrCorrupt) || string(dst) != "dst" {
				t.Errorf("ParseRowKey(%q) = %q, %d, %v, want ErrCorrupt", tc.key, dst, base, err)
			}
		})
	}
}

func TestAppendRowKeyPanics(t *testing.T) {
	for _, base := range []int64{-series.Period, -1, 1, series.IndexPeriod, 2329 * series.Period} {
		t.Run(fmt.Sprint(base), func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			series.Schema{}.AppendRowKey(nil, []byte("up"), base)
		})
	}
}

// The rows of one series lie in the order of their bases.
func TestRowKeyOrder(t *testing.T) {
	random := newRandom(t)
	for range 2000 {
		schema := roundTripSchemas[random.IntN(len(roundTripSchemas))]
		s := newSchema(t, schema.resource, schema.tenant)
		key := appendSeriesKey(t, s, randomLabels(random))
		early := random.Int64N(2328) * series.Period
		late := early + (1+random.Int64N(2328-early/series.Period))*series.Period
		a, b := s.AppendRowKey(nil, key, early), s.AppendRowKey(nil, key, late)
		if bytes.Compare(a, b) >= 0 {
			t.Fatalf("base %d sorts after %d: %q, %q", early, late, a, b)
		}
	}
}

func TestSeriesKeyRoundTripRandom(t *testing.T) {
	random := newRandom(t)
	for range 5000 {
		schema := roundTripSchemas[random.IntN(len(roundTripSchemas))]
		s := newSchema(t, schema.resource, schema.tenant)
		a, b := randomLabels(random), randomLabels(random)
		keyA, keyB := appendSeriesKey(t, s, a), appendSeriesKey(t, s, b)
		checkSeriesKey(t, s, keyA, a)
		checkRowKey(t, s, keyA, random.Int64N(2329)*series.Period)
		if bytes.Equal(keyA, keyB) != labels.Equal(a, b) {
			t.Fatalf("%s and %s have the keys %q and %q", a, b, keyA, keyB)
		}
	}
}

func newRandom(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomText is at most size bytes of the alphabet that keys find hard.
func randomText(random *rand.Rand, size int) string {
	const alphabet = "\\\\,,==\n\x00n0#aab1\xff"
	b := make([]byte, random.IntN(size+1))
	for i := range b {
		b[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(b)
}

// randomLabels is a set of one to five labels, often with a name or resources.
func randomLabels(random *rand.Rand) labels.Labels {
	names := []string{"__name__", "host", "podname", "1297080123392", "A"}
	pairs := map[string]string{"a": "b"}
	for range random.IntN(5) {
		name := names[random.IntN(len(names))]
		if random.IntN(2) == 0 {
			name = "x" + randomText(random, 4)
		}
		pairs[name] = "v" + randomText(random, 6)
	}
	return labels.FromMap(pairs)
}

func TestAbbreviate(t *testing.T) {
	short := labels.FromStrings("__name__", "up", "job", "node")
	if got := series.Abbreviate(short); got != short.String() {
		t.Errorf("Abbreviate = %q", got)
	}
	for _, value := range []string{strings.Repeat("é", 400), strings.Repeat("x", 400), strings.Repeat("x", 401) + "é"} {
		got := series.Abbreviate(labels.FromStrings("__name__", "up", "v", value))
		if !strings.HasPrefix(got, `{__name__="up"`) || !strings.HasSuffix(got, "…") || len(got) > 256+len("…") || strings.ContainsRune(got, '\ufffd') {
			t.Errorf("Abbreviate = %q of %d bytes", got, len(got))
		}
	}
}

func TestSeriesRange(t *testing.T) {
	names := []string{"", "a", "a b", "a,b", "a!", "aa", "a-", "b", "ü"}
	for _, tenant := range []string{"", "t"} {
		schema := newSchema(t, []string{"host"}, tenant)
		for _, asked := range names {
			r := schema.SeriesRange(asked)
			for _, name := range names {
				ls := labels.NewBuilder(labels.FromStrings("x", "y")).Set("__name__", name).Labels() // an empty name is none
				key := appendSeriesKey(t, schema, ls)
				if (asked == "" || asked == name) && !r.Contains(key) {
					t.Errorf("%s, of %q, does not hold %q", r, asked, key)
				}
				if schema.Tenancy() && r.Contains([]byte("u"+string(key[1:]))) {
					t.Errorf("%s holds a key of another tenant", r)
				}
			}
			for _, other := range []string{"b", "aa"} {
				key := appendSeriesKey(t, schema, labels.FromStrings("__name__", other))
				if asked == "a" && r.Contains(key) {
					t.Errorf("%s, of %q, holds %q", r, asked, key)
				}
			}
		}
	}
}
