package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/cell"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/rollup"
	"github.com/promtable/promtable/series/seriestest"
)

// serveRows serves a store as an adapter does.
func serveRows(t *testing.T, s *Store) string {
	t.Helper()
	responder := request.NewResponder(log.NewNopLogger(), now)
	mux := http.NewServeMux()
	mux.Handle(RowsPath, NewRowsHandler(s.Engine, responder, request.NewGate(10, time.Second)))
	mux.Handle(Path, NewHandler(func(context.Context) (*Store, error) { return s, nil }, responder))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// mustAppend stores series, all of whose samples are taken.
func mustAppend(t *testing.T, s *Store, batch ...ingest.Series) {
	t.Helper()
	var rejected ingest.Rejected
	if _, err := s.Engine.Append(t.Context(), batch, &rejected); err != nil || rejected.Err() != nil {
		t.Fatal(err, rejected.Err())
	}
}

// allRows returns what a store has in [from, limit) as text. Stamps are left out.
func allRows(t *testing.T, s *Store, from, limit int64) string {
	t.Helper()
	var b strings.Builder
	all := [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, ".+")}}
	err := s.Engine.Stored(t.Context(), reader.StoredQuery{Selectors: all, Start: from, Limit: limit}, func(of reader.Stored) error {
		content, err := contentOf(seriesOfStored(of).chunks)
		fmt.Fprintf(&b, "%s %x\n", of.Labels, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rowsOf returns the rows of a store in this process, or of a URL.
func rowsOf(t *testing.T, s *Store, url string, sel Selection) *Rows {
	t.Helper()
	if url == "" {
		return NewEngineRows(s.Engine, sel, [rollup.NumResolutions]int64{})
	}
	rows, err := NewRows(Server{URL: url}, sel, [rollup.NumResolutions]int64{})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestCopyRows: a copy has all that the source has: floats to the bit, with start timestamps, histograms, exemplars, current samples of series that have ended. What is changed
// later, and what the target has lost, a second copy brings, and only that. What only the target has is said.
func TestCopyRows(t *testing.T) {
	random := rand.New(rand.NewPCG(32, 1))
	source := newStore(t)
	const from = start + 12345
	const limit = start + 3*UnitSpan - 54321
	var batch []ingest.Series
	for n := range 40 {
		ls := labels.FromStrings(labels.MetricName, fmt.Sprintf("m%d", n%7), "n", fmt.Sprint(n))
		histograms := &seriestest.HistogramSource{Rand: random, Float: n%8 == 7, Gauge: n%3 == 0}
		s := ingest.Series{Labels: ls}
		for range 1 + random.IntN(300) {
			at := start + random.Int64N(3*UnitSpan)
			v := []float64{random.NormFloat64(), float64(random.IntN(9)), math.Copysign(0, -1), math.Float64frombits(value.StaleNaN), math.Float64frombits(0x7ff8000000abcdef), math.Inf(1)}[random.IntN(6)]
			sample := ingest.Sample{T: at, V: v}
			if n%4 == 1 && random.IntN(3) > 0 {
				sample.ST = at - random.Int64N(1e6)
			}
			if n%4 < 3 {
				s.Samples = append(s.Samples, sample)
			}
			if n%4 == 2 && random.IntN(10) == 0 || n%4 == 3 {
				h := histograms.Next()
				s.Histograms = append(s.Histograms, ingest.Histogram{T: at, ST: h.Start, H: h.Histogram, FH: h.FloatHistogram})
			}
			if random.IntN(20) == 0 {
				s.Exemplars = append(s.Exemplars, exemplar.Exemplar{Labels: labels.FromStrings("trace", fmt.Sprint(at)), Value: v, Ts: at, HasTs: true})
			}
		}
		batch = append(batch, s)
	}
	mustAppend(t, source, batch...)
	sourceURL := serveRows(t, source)
	for _, overHTTP := range []bool{true, false} {
		t.Run(fmt.Sprintf("over HTTP %t", overHTTP), func(t *testing.T) {
			store, executor := openStore(t)
			sel := Selection{Mint: from, Maxt: limit - 1}
			var target Target = store
			var url string
			if overHTTP {
				url = serveRows(t, store)
				client, err := NewClient(Server{URL: url})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(client.Close)
				target = client
			}
			one, other := rowsOf(t, source, sourceURL, sel), rowsOf(t, store, url, sel)
			t.Cleanup(func() { one.close(); other.close() })
			copied := func(different int) int64 {
				t.Helper()
				c, err := Copy(t.Context(), CopyConfig{
					Source: one, Selection: sel, Target: target, ID: "test", Read: other.Open, Lacking: LackingRows, Workers: 2,
					Same: func(ctx context.Context, u Unit) (bool, error) { return SameRows(ctx, one, other, u, nil) },
				}, func(Copied) {})
				if err != nil || c.Different != different || c.Units != c.Same+c.Written {
					t.Fatalf("%+v, %v, want %d that differ", c, err, different)
				}
				if same := allRows(t, store, from, limit) == allRows(t, source, from, limit); same != (different == 0) {
					t.Errorf("both have the same: %t", same)
				}
				return c.Samples
			}
			if n := copied(0); n < 5000 {
				t.Errorf("%d samples", n)
			}
			if got := allRows(t, store, 0, from) + allRows(t, store, limit, math.MaxInt64); got != "" {
				t.Errorf("samples that were not to be copied: %s", got)
			}
			if n := copied(0); n != 0 {
				t.Errorf("a second copy writes %d samples", n)
			}
			// A value is another one, also where the target has an answer of its own.
			x := batch[0]
			x.Samples = []ingest.Sample{{T: from + 77_777, V: float64(random.IntN(1e9))}}
			mustAppend(t, store, x)
			x.Samples[0].V++
			mustAppend(t, source, x)
			c, err := Copy(t.Context(), CopyConfig{
				Source: one, Selection: sel, Target: target, ID: "test", Read: other.Open, Lacking: LackingRows,
				Same: func(ctx context.Context, u Unit) (bool, error) { return SameRows(ctx, one, other, u, nil) },
			}, func(Copied) {})
			if err != nil || c.Written != 1 || c.Different != 1 { // raw cells win over chunks
				t.Errorf("%+v, %v", c, err)
			}
			matchers := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "n", "0")}
			if err := store.Engine.Delete(t.Context(), from, from+UnitSpan, matchers); err != nil {
				t.Fatal(err)
			}
			if err := executor.Advance(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := copied(0); n == 0 || n > 400 {
				t.Errorf("%d samples for what was deleted", n)
			}
			// Once more: both are chunks in the target now.
			x.Samples[0].V++
			mustAppend(t, source, x)
			if n := copied(0); n == 0 || n > 400 {
				t.Errorf("%d samples for another value", n)
			}
			mustAppend(t, store, ingest.Series{Labels: labels.FromStrings(labels.MetricName, "other"), Samples: []ingest.Sample{{T: limit - 1, V: 1}}})
			copied(1)
			// Current samples.
			n, err := one.CopyCurrent(t.Context(), target, from, limit)
			if err != nil || n == 0 {
				t.Fatal(n, err)
			}
			found := make(map[string]string)
			q := reader.StoredQuery{Start: from, Limit: limit}
			for i, s := range []*Store{source, store} {
				err := s.Engine.StoredCurrent(t.Context(), q, func(of reader.Stored) error {
					v, err := cell.Parse(of.Cells[0].Value)
					text := fmt.Sprintf("%d %x %v %v", of.Cells[0].Time, math.Float64bits(v.Float), v.Histogram, v.FloatHistogram)
					if i == 0 {
						found[of.Labels.String()] = text
					} else if want, ok := found[of.Labels.String()]; ok && want != text {
						t.Errorf("current sample of %s is %s, want %s", of.Labels, text, want)
					} else {
						delete(found, of.Labels.String())
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if len(found) > 0 {
				t.Errorf("no current samples of %v", found)
			}
		})
	}
}

// TestBadRows: what is no cell is refused with what is wrong, and stores nothing.
func TestBadRows(t *testing.T) {
	s := newStore(t)
	url := serveRows(t, s)
	of := labels.FromStrings(labels.MetricName, "a")
	good := bucketstore.ChunkCell(chunk.EncodingDense, 5, start, start, dense.Append(nil, []int64{start}, []float64{1}))
	send := func(c bucketstore.Cell, rolled bool) error {
		client, err := NewClient(Server{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		base, _ := series.Split(start)
		w, err := client.NewWriter(t.Context(), Unit{Start: start, Limit: start + UnitSpan, Rolled: rolled})
		if err != nil {
			t.Fatal(err)
		}
		return errors.Join(w.Write(t.Context(), seriesOfStored(reader.Stored{Labels: of, Cells: []reader.StoredCell{{Base: base, Cell: c}}})), w.Flush(t.Context()))
	}
	other := func(change func(*bucketstore.Cell)) bucketstore.Cell {
		c := good
		c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
		change(&c)
		return c
	}
	for name, c := range map[string]bucketstore.Cell{
		"another byte":     other(func(c *bucketstore.Cell) { c.Value[9] ^= 1 }),
		"short":            other(func(c *bucketstore.Cell) { c.Value = c.Value[:3] }),
		"no family":        other(func(c *bucketstore.Cell) { c.Family = "x" }),
		"exemplar":         other(func(c *bucketstore.Cell) { c.Family = series.FamilyExemplar }),
		"rollup":           other(func(c *bucketstore.Cell) { c.Family = rollup.OneHour.Family() }),
		"data of no chunk": bucketstore.ChunkCell(chunk.EncodingDense, 5, start, start, []byte{200, 200, 200}),
	} {
		if err := send(c, false); err == nil || !strings.Contains(err.Error(), `{__name__="a"}`) || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := allRows(t, s, 0, math.MaxInt64); got != "" {
		t.Errorf("stored %s", got)
	}
	if err := send(good, false); err != nil {
		t.Error(err)
	}
	for form, want := range map[string]string{
		"start=1&limit=2&of=samples":             "match[]",
		"match[]=up&start=x&limit=2&of=samples":  "start",
		"match[]=up&start=1&limit=2&of=x":        "of",
		"match[]={&start=1&limit=2&of=samples":   "match[]",
		"match[]=up&start=1&limit=2&of=samples":  "",
		"match[]=up&start=1&limit=2&of=rollups":  "",
		"match[]=up&start=-5&limit=2&of=current": "",
	} {
		resp, err := http.Post(url+RowsPath, "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if isGood := resp.StatusCode == http.StatusOK; isGood != (want == "") || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %s", form, resp.Status, body)
		}
	}
}

// TestRowsOfAnotherVersion: an adapter that gives no rows is asked once, and named.
func TestRowsOfAnotherVersion(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	s := newStore(t)
	sel := Selection{Mint: start, Maxt: start + 1}
	from, to := rowsOf(t, nil, server.URL, sel), rowsOf(t, s, "", sel)
	defer from.close()
	_, err := Copy(t.Context(), CopyConfig{
		Source: from, Selection: sel, Target: s, ID: "test", Read: to.Open, Lacking: LackingRows,
		Same: func(ctx context.Context, u Unit) (bool, error) { return SameRows(ctx, from, to, u, nil) },
	}, func(Copied) {})
	if err == nil || !strings.Contains(err.Error(), server.URL) || !strings.Contains(err.Error(), "no adapter of this version") || asked.Load() != 1 {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}
