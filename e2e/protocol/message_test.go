package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/e2e/harness"
)

// A message is a write request under construction, and what of it can be
// stored.
type message struct {
	harness.Protocol
	id        string // of its series, in the label case
	now       int64
	symbols   *harness.SymbolTable
	series    []byte // the fields of series
	rest      []byte // what follows them
	stored    []harness.TimeSeries
	exemplars int // stored
}

func newMessage(p harness.Protocol, id string) *message {
	return &message{
		Protocol: p, id: p.Name + "/" + id, now: harness.NowMillis(),
		symbols: harness.NewSymbolTable(),
	}
}

func (m *message) v2() bool { return m.Name == harness.RemoteWrite2().Name }

// field returns the number that a field has in the protocol.
func (m *message) field(v1, v2 uint64) uint64 {
	if m.v2() {
		return v2
	}
	return v1
}

// labels returns the labels of a series of this message.
func (m *message) labels(name string, more ...string) []string {
	return append([]string{"__name__", name, "case", m.id}, more...)
}

// encodeLabels encodes the first field of series and of exemplars.
func (m *message) encodeLabels(ls []string) (dst []byte) {
	var refs []byte
	for pair := range slices.Chunk(ls, 2) {
		if m.v2() {
			refs = binary.AppendUvarint(binary.AppendUvarint(refs, m.symbols.Ref(pair[0])), m.symbols.Ref(pair[1]))
			continue
		}
		dst = harness.AppendBytes(dst, 1, harness.AppendBytes(harness.AppendBytes(nil, 1, pair[0]), 2, pair[1]))
	}
	if m.v2() {
		dst = harness.AppendBytes(nil, 1, refs)
	}
	return dst
}

// add adds a series; fields follow its labels.
func (m *message) add(ls []string, fields ...[]byte) {
	m.addBytes(append(m.encodeLabels(ls), bytes.Join(fields, nil)...))
}

func (m *message) addBytes(series []byte) {
	m.series = harness.AppendBytes(m.series, m.field(1, 5), series)
}

// keep says that the points are to be found.
func (m *message) keep(ls []string, points ...harness.Point) {
	m.stored = append(m.stored, harness.TimeSeries{Labels: labels.FromStrings(ls...).WithoutEmpty(), Points: points})
}

func (m *message) sample(t int64, v float64) []byte {
	return harness.AppendBytes(nil, 2, harness.AppendSample(nil, harness.PointAt(t, v), 0))
}

func (m *message) hist(t testing.TB, time int64, h *histogram.Histogram, fh *histogram.FloatHistogram, more ...byte) []byte {
	t.Helper()
	data, err := m.Histogram(0, time, h, fh)
	if err != nil {
		t.Fatal(err)
	}
	return harness.AppendBytes(nil, m.field(4, 3), append(data, more...))
}

// exemplar encodes an exemplar; ls are its labels, encoded.
func (m *message) exemplar(t int64, ls []byte) []byte {
	return harness.AppendBytes(nil, m.field(3, 4), append(ls, appendShifted(harness.PointAt(t, 1))...))
}

// appendShifted encodes value and timestamp of an exemplar, whose fields are
// one above those of a sample.
func appendShifted(p harness.Point) []byte {
	dst := binary.LittleEndian.AppendUint64(harness.AppendTag(nil, 2, harness.WireFixed), p.Bits)
	if p.T != 0 {
		dst = harness.AppendInt(dst, 3, p.T)
	}
	return dst
}

// body returns the message without compression.
func (m *message) body() (req []byte) {
	if m.v2() {
		for _, text := range m.symbols.List {
			req = harness.AppendBytes(req, 4, text)
		}
	}
	return slices.Concat(req, m.series, m.rest)
}

// addFloats and addHistogram add series that are all right.
func (m *message) addFloats() {
	ls := m.labels("floats", "first", "yes")
	points := []harness.Point{{T: m.now - 1, Bits: value.StaleNaN}, harness.PointAt(m.now, math.Copysign(0, -1))}
	m.add(ls, harness.AppendBytes(nil, 2, harness.AppendSample(nil, points[0], 0)), harness.AppendBytes(nil, 2, harness.AppendSample(nil, points[1], 0)))
	m.keep(ls, points...)
}

func (m *message) addHistogram(t testing.TB) {
	ls, h := m.labels("histogram"), goodHistogram()
	m.add(ls, m.hist(t, m.now, h, nil))
	m.keep(ls, harness.HistogramPoint(m.now, 0, h, nil))
}

// request makes a request of the message.
func (m *message) request(status int, texts ...string) malformed {
	return malformed{
		name: m.id, path: "/api/v1/write", header: harness.ProtobufHeader("Content-Type", m.ContentType),
		body: snappy.Encode(nil, m.body()), status: status, texts: texts, sent: m,
	}
}

// checkWritten compares the headers of 2.0 with what is to be stored; 1.0 has
// none. One that is missing means 0.
func (m *message) checkWritten(t *testing.T, resp harness.Response) {
	t.Helper()
	want := map[string]int{samplesWritten: 0, histogramsWritten: 0, exemplarsWritten: m.exemplars}
	for _, s := range m.stored {
		for _, p := range s.Points {
			if p.Histogram != "" {
				want[histogramsWritten]++
			} else {
				want[samplesWritten]++
			}
		}
	}
	for name, n := range want {
		got := resp.Header.Values(name)
		if !m.v2() && len(got) > 0 {
			t.Errorf("%s is %q in 1.0", name, got)
		}
		if m.v2() && (n > 0 || len(got) > 0) && !slices.Equal(got, []string{fmt.Sprint(n)}) {
			t.Errorf("%s is %q, want %d", name, got, n)
		}
	}
}

// checkStored wants all that could be stored to be there, and nothing else.
func (m *message) checkStored(t *testing.T, a *harness.Adapter) {
	t.Helper()
	want := slices.Clone(m.stored)
	harness.SortSeries(want)
	q := harness.Query{Mint: math.MinInt64, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "case", "=", m.id)}
	for _, as := range harness.AnswerTypes() {
		if d := harness.DiffSeries(harness.MustRead(t, a.URL("/api/v1/read"), as, q), want); d != "" {
			t.Errorf("%v: %s", as, d)
		}
	}
	data, err := harness.GetAPI(a.URL("/api/v1/query_exemplars"), url.Values{
		"query": {fmt.Sprintf("{case=%q}", m.id)}, "start": {"0"}, "end": {harness.FormatSeconds(m.now + 3_600_000)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var found []struct{ Exemplars []json.RawMessage }
	if err := json.Unmarshal(data, &found); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range found {
		n += len(s.Exemplars)
	}
	if n != m.exemplars {
		t.Errorf("%d exemplars are stored, want %d: %s", n, m.exemplars, data)
	}
}
