package protocol

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtable/promtable/e2e/harness"
)

// A malformed is a request that breaks a rule, and its expected answer.
type malformed struct {
	name   string
	path   string
	header map[string]string
	body   []byte // as sent
	status int
	texts  []string // in the answer: they name the offender
	sent   *message // what the body was made of, nil for reads
}

// TestMalformed breaks the rules of remote write and remote read one by one. The valid part
// of such a request is stored, and the adapter goes on.
func TestMalformed(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	for _, m := range malformedRequests(t) {
		t.Run(m.name, func(t *testing.T) { m.check(t, a) })
	}
	checkNoRange(t, a)
}

// TestMalformedOnBigtable repeats the cases that store something.
func TestMalformedOnBigtable(t *testing.T) {
	a := harness.StartAdapter(t, harness.Emulator(t))
	for _, m := range malformedRequests(t) {
		if m.sent != nil && len(m.sent.stored) > 0 {
			t.Run(m.name, func(t *testing.T) { m.check(t, a) })
		}
	}
	checkNoRange(t, a)
}

func malformedRequests(t testing.TB) []malformed {
	var all []malformed
	for _, p := range harness.RemoteWrites() {
		all = slices.Concat(all, headerFaults(p), writeFaults(t, p))
	}
	return append(all, readFaults()...)
}

// check sends the request.
func (m malformed) check(t *testing.T, a *harness.Adapter) {
	resp, err := harness.Post(context.Background(), a.URL(m.path), m.header, m.body)
	if err != nil {
		t.Fatal(err)
	}
	// The name of the case, which stands in the labels, says what is wrong as well.
	text := strings.ReplaceAll(resp.Body, m.name, "")
	if resp.Status != m.status || !harness.ContainsAll(text, m.texts) || len(resp.Body) > 1024 {
		t.Errorf("want %d with %q in at most 1024 bytes, got %.1100s", m.status, m.texts, resp)
	}
	if got := harness.MustGet(t, a.URL("/-/healthy"), nil); got.Status != http.StatusOK {
		t.Errorf("/-/healthy: %v", got)
	}
	if m.sent != nil {
		m.sent.checkWritten(t, resp)
		m.sent.checkStored(t, a)
	}
}

// checkNoRange asks for a range that ends before it begins.
func checkNoRange(t *testing.T, a *harness.Adapter) {
	t.Helper()
	for _, as := range harness.AnswerTypes() {
		for _, q := range []harness.Query{{Mint: math.MaxInt64, Maxt: math.MinInt64, Matchers: nil}, {Mint: harness.NowMillis(), Maxt: 0, Matchers: nil}} {
			q.Matchers = harness.MustMatchers(t, "__name__", "=~", ".+")
			if found := harness.MustRead(t, a.URL("/read"), as, q); len(found) != 0 {
				t.Errorf("%v: %d series in [%d, %d]", as, len(found), q.Mint, q.Maxt)
			}
		}
	}
}

// headerFaults say something else than what the body is, or are right about a
// block that is no snappy.
func headerFaults(p harness.Protocol) (faults []malformed) {
	fault := func(name string, status int, body []byte, text string, changes ...string) {
		m := newMessage(p, name)
		m.addFloats()
		m.stored = nil
		r := m.request(status, text)
		for c := range slices.Chunk(changes, 2) {
			r.header[c[0]] = c[1]
		}
		if r.body = body; body == nil {
			r.body = snappy.Encode(nil, m.body())
		}
		faults = append(faults, r)
	}
	for _, kind := range []string{
		"text/plain", "application/protobuf", "application/x-protobuf;proto=", "application/x-protobuf;proto", "nonsense/",
		"application/x-protobuf;proto=prometheus.writerequest", "application/x-protobuf;proto=prometheus.ReadRequest",
		"application/x-protobuf;proto=io.prometheus.write.v3.Request", "application/x-protobuf;proto=a;proto=b",
	} {
		text := kind[strings.LastIndex(kind, "=")+1:]
		fault("type "+kind, 415, nil, text, "Content-Type", kind)
		fault("bad body of type "+kind, 415, []byte("bad"), text, "Content-Type", kind)
	}
	for _, encoding := range []string{"zstd", "gzip, snappy", "snappy-framed", "identity"} {
		fault("encoding "+encoding, 415, nil, encoding, "Content-Encoding", encoding)
		fault("bad body in encoding "+encoding, 415, snappyBomb(), encoding, "Content-Encoding", encoding)
	}
	for _, other := range harness.RemoteWrites() {
		if other.Name != p.Name {
			m := newMessage(other, "")
			m.addFloats()
			fault("body of another version", 400, snappy.Encode(nil, m.body()), "is one of remote write "+other.Name)
		}
	}
	fault("type, encoding and body", 415, []byte("bad"), " is not ", "Content-Type", "a/b", "Content-Encoding", "gzip")
	good := newMessage(p, "")
	good.addFloats()
	for _, b := range badBlocks(good.body()) {
		fault(b.name, 400, b.data, b.text)
	}
	return faults
}

// A badBlock is no snappy block.
type badBlock struct {
	name string
	data []byte
	text string
}

func badBlocks(body []byte) []badBlock {
	block := snappy.Encode(nil, body)
	declare := func(size uint64) []byte {
		_, n := binary.Uvarint(block)
		return append(binary.AppendUvarint(nil, size), block[n:]...)
	}
	n := uint64(len(body))
	return []badBlock{
		{"snappy of nothing", []byte{}, "snappy"},
		{"no snappy", body, "snappy"},
		{"snappy that declares a byte more", declare(n + 1), "snappy"},
		{"snappy that declares a byte less", declare(n - 1), "snappy"},
		{"snappy that declares nothing", declare(0), "snappy"},
		{"snappy that declares 31 MiB", declare(31 << 20), fmt.Sprint(31 << 20)},
		{"snappy that declares 33 MiB", declare(33 << 20), fmt.Sprint(33 << 20)},
		{"snappy that declares 4 GiB", declare(1<<32 - 1), fmt.Sprint(1<<32 - 1)},
		{"snappy that declares 2^64 - 1", declare(math.MaxUint64), "snappy"},
		{"snappy without the end of its length", []byte{0x80}, "snappy"},
		{"snappy without its last byte", block[:len(block)-1], "snappy"},
		{"snappy that copies from before its beginning", []byte{4, 1, 9}, "snappy"},
	}
}

// A fault adds to a message what breaks a rule. If it breaks the message as a
// whole, nothing of that is stored.
type fault struct {
	name  string
	whole bool
	add   func(m *message)
	texts []string
	fine  bool // looks malformed, and is not
}

// writeFaults are put between two series that are all right.
func writeFaults(t testing.TB, p harness.Protocol) (all []malformed) {
	faults := slices.Concat(labelFaults(), timeFaults(t), histogramFaults(t), exemplarFaults(), wireFaults(p))
	if p.Name == harness.RemoteWrite2().Name {
		faults = slices.Concat(faults, referenceFaults(t), symbolFaults())
	} else {
		faults = append(faults, metadataFaults()...)
	}
	for _, f := range faults {
		m := newMessage(p, f.name)
		m.addFloats()
		f.add(m)
		m.addHistogram(t)
		status := http.StatusBadRequest
		if f.fine {
			status = http.StatusNoContent
		}
		if f.whole {
			m.stored, m.exemplars = nil, 0
		}
		all = append(all, m.request(status, f.texts...))
	}
	return all
}

func labelFaults() (faults []fault) {
	bad := func(name, text string, more ...string) {
		faults = append(faults, fault{name: name, texts: []string{"offender", text}, add: func(m *message) {
			m.add(m.labels("offender", more...), m.sample(m.now, 1))
		}})
	}
	bad("name twice", `"__name__"`, "__name__", "other")
	bad("same label twice", `"b"`, "b", "1", "b", "1")
	bad("label twice, apart", `"b"`, "b", "1", "c", "2", "b", "3")
	bad("label twice, unsorted", `"b"`, "z", "1", "b", "2", "a", "3", "b", "4")
	bad("no UTF-8 in a label name", "UTF-8", "a\xff", "1")
	bad("no UTF-8 in a label value", "UTF-8", "a", "1\xc3")
	bad("no UTF-8 in a label value, a surrogate", "UTF-8", "a", "\xed\xa0\x80")
	bad("empty label name among others", `label ""`, "a", "1", "", "2")
	series := func(name string, texts []string, ls ...string) {
		faults = append(faults, fault{name: name, texts: texts, add: func(m *message) {
			m.add(append(ls, "case", m.id), m.sample(m.now, 1))
		}})
	}
	series("no UTF-8 in the name", []string{"bad_name", "UTF-8"}, "__name__", "bad_name\xff")
	series("name without a value", []string{"no metric name", "bad_name"}, "__name__", "", "job", "bad_name")
	faults = append(faults, fault{name: "no labels", texts: []string{"{}", "no metric name"}, add: func(m *message) {
		m.add(nil, m.sample(m.now, 1))
	}})
	fine := func(name string, more ...string) {
		faults = append(faults, fault{name: name, fine: true, add: func(m *message) {
			ls := append(more, m.labels("fine")...)
			m.add(ls, m.sample(m.now, 1))
			m.keep(ls, harness.PointAt(m.now, 1))
		}})
	}
	fine("unsorted labels", "z", "1", "b", "2", "Z", "3")
	fine("label without a value", "empty", "")
	return faults
}

// timeFaults put a time that cannot be stored beside one that can.
func timeFaults(t testing.TB) (faults []fault) {
	const past, future = "is not in [0, ", "ahead of the clock"
	now := harness.NowMillis()
	for _, bad := range []struct {
		name string
		t    int64
		text string
	}{
		{"just before 1970", -1, past},
		{"the least time", math.MinInt64, past},
		{"a time past the last", 10_000_000_000_000, past},
		{"the greatest time", math.MaxInt64, past},
		{"twenty minutes ahead", now + 20*60_000, future},
	} {
		texts := []string{"offender", fmt.Sprint(bad.t), bad.text}
		faults = append(faults, fault{name: "sample at " + bad.name, texts: texts, add: func(m *message) {
			ls := m.labels("offender")
			m.add(ls, m.sample(m.now-1, 1), m.sample(bad.t, 2), m.sample(m.now, 3))
			m.keep(ls, harness.PointAt(m.now-1, 1), harness.PointAt(m.now, 3))
		}}, fault{name: "histogram at " + bad.name, texts: texts, add: func(m *message) {
			ls, h := m.labels("offender"), goodHistogram()
			m.add(ls, m.hist(t, m.now-1, h, nil), m.hist(t, bad.t, h, nil))
			m.keep(ls, harness.HistogramPoint(m.now-1, 0, h, nil))
		}}, exemplarFault("exemplar at "+bad.name, bad.t, texts, func(m *message) []byte {
			return m.encodeLabels([]string{"trace", "bad"})
		}))
	}
	return faults
}

func goodHistogram() *histogram.Histogram {
	return &histogram.Histogram{Count: 3, Sum: 4, PositiveSpans: []histogram.Span{{Length: 2}}, PositiveBuckets: []int64{1, 1}}
}

// histogramFaults change a histogram that is all right.
func histogramFaults(t testing.TB) (faults []fault) {
	type ints = *histogram.Histogram
	type floats = *histogram.FloatHistogram
	add := func(name, text string, encode func(m *message) []byte) {
		faults = append(faults, fault{name: "histogram, " + name, texts: []string{"offender", text}, add: func(m *message) {
			ls := m.labels("offender")
			m.add(ls, m.hist(t, m.now-1, goodHistogram(), nil), encode(m))
			m.keep(ls, harness.HistogramPoint(m.now-1, 0, goodHistogram(), nil))
		}})
	}
	bad := func(name, text string, change func(h ints)) {
		h := goodHistogram()
		change(h)
		add(name, text, func(m *message) []byte { return m.hist(t, m.now, h, nil) })
	}
	custom := func(name, text string, bounds []float64, change func(h ints)) {
		bad("custom buckets, "+name, text, func(h ints) { h.Schema, h.CustomValues = -53, bounds; change(h) })
	}
	float := func(name, text string, change func(h floats)) {
		fh := goodHistogram().ToFloat(nil)
		change(fh)
		add("float, "+name, text, func(m *message) []byte { return m.hist(t, m.now, nil, fh) })
	}
	spans := func(list ...histogram.Span) []histogram.Span { return list }
	bad("too few spans", "need 1 buckets, have 2", func(h ints) { h.PositiveSpans = spans(histogram.Span{Length: 1}) })
	bad("too many spans", "need 3 buckets, have 2", func(h ints) { h.PositiveSpans = spans(histogram.Span{Length: 3}) })
	bad("no spans", "need 0 buckets, have 2", func(h ints) { h.PositiveSpans = nil })
	bad("no buckets", "need 2 buckets, have 0", func(h ints) { h.PositiveBuckets = nil })
	bad("negative buckets without spans", "negative side", func(h ints) { h.NegativeBuckets = []int64{1} })
	bad("spans that go back", "offset -1", func(h ints) {
		h.PositiveSpans = spans(histogram.Span{Length: 1}, histogram.Span{Offset: -1, Length: 1})
	})
	bad("spans over 2^32", "bucket index is out of range", func(h ints) {
		h.PositiveSpans = spans(histogram.Span{Length: math.MaxUint32}, histogram.Span{Length: 2})
	})
	bad("bucket below 0", "-1", func(h ints) { h.PositiveBuckets = []int64{1, -2} })
	bad("count too large", "Count field is 4", func(h ints) { h.Count = 4 })
	bad("count too small", "Count field is 2", func(h ints) { h.Count = 2 })
	bad("count too small for a sum of NaN", "Count field is 2", func(h ints) { h.Count, h.Sum = 2, math.NaN() })
	bad("schema -5", "schema -5", func(h ints) { h.Schema = -5 })
	bad("schema 53", "schema 53", func(h ints) { h.Schema = 53 })
	bad("bounds of custom buckets", "custom bounds", func(h ints) { h.CustomValues = []float64{1} })
	custom("unsorted", "increasing", []float64{2, 1}, func(ints) {})
	custom("equal", "increasing", []float64{1, 1}, func(ints) {})
	custom("NaN", "NaN", []float64{1, math.NaN()}, func(ints) {})
	custom("infinite", "Inf", []float64{1, math.Inf(1)}, func(ints) {})
	custom("too few", "0 custom bounds", nil, func(ints) {})
	custom("negative", "negative", []float64{1}, func(h ints) { h.NegativeSpans, h.NegativeBuckets = h.PositiveSpans, h.PositiveBuckets })
	custom("zero bucket", "zero count", []float64{1}, func(h ints) { h.ZeroCount, h.Count = 1, 4 })
	custom("zero threshold", "zero threshold", []float64{1}, func(h ints) { h.ZeroThreshold = 1 })
	float("too many spans", "need 3 buckets, have 2", func(h floats) { h.PositiveSpans = spans(histogram.Span{Length: 3}) })
	float("bucket below 0", "-1", func(h floats) { h.PositiveBuckets = []float64{1, -1} })
	float("count below 0", "negative", func(h floats) { h.Count = -3 })
	float("schema 53", "schema 53", func(h floats) { h.Schema = 53 })
	float("unsorted custom buckets", "increasing", func(h floats) { h.Schema, h.CustomValues = -53, []float64{2, 1} })
	// The last of two counts is the one that holds: the buckets are of the other kind.
	add("integer and then float count", "need 2 buckets, have 0", func(m *message) []byte {
		return m.hist(t, m.now, goodHistogram(), nil, binary.LittleEndian.AppendUint64(harness.AppendTag(nil, 2, harness.WireFixed), math.Float64bits(3))...)
	})
	add("float and then integer count", "need 2 buckets, have 0", func(m *message) []byte {
		return m.hist(t, m.now, nil, goodHistogram().ToFloat(nil), harness.AppendInt(nil, 1, 3)...)
	})
	return faults
}

// exemplarFault puts an exemplar beside one that is all right, in a series that
// is.
func exemplarFault(name string, t int64, texts []string, labels func(m *message) []byte) fault {
	return fault{name: name, texts: texts, add: func(m *message) {
		ls := m.labels("offender")
		m.add(ls, m.sample(m.now, 7), m.exemplar(t, labels(m)), m.exemplar(m.now, m.encodeLabels([]string{"trace", "good"})))
		m.keep(ls, harness.PointAt(m.now, 7))
		m.exemplars++
	}}
}

func exemplarFaults() (faults []fault) {
	bad := func(name string, t int64, text string, labels ...string) {
		faults = append(faults, exemplarFault("exemplar, "+name, t, []string{"offender", "exemplar", text}, func(m *message) []byte {
			return m.encodeLabels(labels)
		}))
	}
	now := harness.NowMillis()
	bad("no time", 0, "no timestamp", "trace", "bad")
	bad("label twice", now, `"trace"`, "trace", "1", "span", "2", "trace", "3")
	bad("no UTF-8", now, "UTF-8", "trace", "bad\xff")
	bad("empty label name", now, "names not empty", "", "bad")
	bad("129 characters", now, "129 characters", "trace", strings.Repeat("ä", 124))
	bad("far too long", now, "5005 bytes", "trace", strings.Repeat("x", 5000))
	return faults
}

// referenceFaults refer, in 2.0, to symbols that are not there.
func referenceFaults(t testing.TB) (faults []fault) {
	add := func(name string, add func(m *message), texts ...string) {
		faults = append(faults, fault{name: name, texts: texts, add: add})
	}
	refs := func(list ...uint64) (packed []byte) {
		for _, ref := range list {
			packed = binary.AppendUvarint(packed, ref)
		}
		return harness.AppendBytes(nil, 1, packed)
	}
	wrong := []uint64{1000, 1 << 32, 1<<32 + 1, math.MaxUint64}
	add("odd references", func(m *message) { m.addBytes(append(refs(1, 2, 3), m.sample(m.now, 1)...)) }, "series 1 of", "odd")
	for _, ref := range wrong {
		text := fmt.Sprintf("reference %d ", ref)
		add("a name of "+text, func(m *message) { m.addBytes(append(refs(1, 2, ref, 2), m.sample(m.now, 1)...)) }, "series 1 of", text)
		add("a value of "+text, func(m *message) { m.addBytes(append(refs(1, ref), m.sample(m.now, 1)...)) }, "series 1 of", text)
		faults = append(faults, exemplarFault("exemplar of "+text, harness.NowMillis(), []string{"offender", "exemplar", text}, func(*message) []byte { return refs(1, ref) }))
	}
	faults = append(faults, exemplarFault("exemplar of odd references", harness.NowMillis(), []string{"offender", "exemplar", "odd"}, func(*message) []byte { return refs(1, 2, 3) }))
	for i, name := range []string{"help", "unit"} {
		field := uint64(i + 3)
		for _, ref := range wrong {
			text := fmt.Sprintf("reference %d ", ref)
			add("metadata, "+name+" of "+text, func(m *message) {
				ls := m.labels("offender")
				m.add(ls, m.sample(m.now, 1), harness.AppendBytes(nil, 5, harness.AppendInt(harness.AppendInt(nil, 1, 1), field, int64(ref))))
				m.keep(ls, harness.PointAt(m.now, 1))
			}, "offender", "metadata", text)
		}
	}
	add("samples and histograms", func(m *message) {
		m.add(m.labels("offender"), m.sample(m.now, 1), m.hist(t, m.now-1, goodHistogram(), nil))
	}, "offender", "both samples and histograms")
	add("neither samples nor histograms", func(m *message) { m.add(m.labels("offender")) }, "offender", "neither samples nor histograms")
	add("metadata only", func(m *message) { m.add(m.labels("offender"), harness.AppendBytes(nil, 5, "\x08\x01")) }, "offender", "neither samples nor histograms")
	return faults
}

// symbolFaults break the table of symbols, on which all series rely.
func symbolFaults() []fault {
	bad := func(name string, change func(m *message)) fault {
		return fault{name: name, whole: true, add: change, texts: []string{"first symbol"}}
	}
	return []fault{
		bad("first symbol is not empty", func(m *message) { m.symbols.List[0] = "x" }),
		bad("no empty symbol", func(m *message) { m.symbols.List[0] = "__name__" }),
	}
}

// metadataFaults are of 1.0, where metadata come apart from series.
func metadataFaults() (faults []fault) {
	bad := func(name, text string, metadata []byte) {
		faults = append(faults, fault{name: "metadata, " + name, texts: []string{text}, add: func(m *message) { m.rest = harness.AppendBytes(nil, 3, metadata) }})
	}
	bad("no family", "family", harness.AppendBytes(harness.AppendInt(nil, 1, 1), 4, "help"))
	bad("no UTF-8 in the family", "UTF-8", harness.AppendBytes(harness.AppendInt(nil, 1, 1), 2, "bad\xff"))
	return faults
}
