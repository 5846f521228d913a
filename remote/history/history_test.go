package history

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/index"
	"go.uber.org/goleak"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/bucketstore/pebble"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/series"
)

// TestMain wants no goroutine to outlive the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is where the first unit of the tests begins.
const start = int64(12_000) * UnitSpan

func now() time.Time { return time.UnixMilli(start + 100*UnitSpan) }

// newStore returns a target over an embedded store.
func newStore(t *testing.T) *Store {
	t.Helper()
	s, _ := openStore(t)
	return s
}

// openStore returns a target over an embedded store, and what removes its deleted samples.
func openStore(t *testing.T) (*Store, *deletion.Executor) {
	t.Helper()
	tables := bucketstore.Tables(bucketstore.Retention{})
	tables[bucketstore.Current].Families[0].MaxAge = 0 // the samples of the tests are years old
	rows, err := pebble.Open(pebble.Config{Dir: t.TempDir(), Tables: tables, CacheBytes: 4 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := series.NewSchema(nil)
	if err != nil {
		t.Fatal(err)
	}
	about, err := meta.Open(t.Context(), rows, schema, now)
	if err != nil {
		t.Fatal(err)
	}
	records, err := deletion.Open(t.Context(), deletion.Config{Meta: about, Schema: schema, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: rows, Appender: bucketstore.NewDirect(rows, schema, now, nil), Schema: schema, Now: now, Deletions: records})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := e.Close(context.Background())
		_, checkErr := engine.Check(context.Background(), engine.CheckConfig{
			Store: rows, Schema: schema, Progress: func(bucketstore.Table, int64, int64) {},
			Report: func(f bucketstore.Finding) { t.Errorf("a check of the store finds %s", f) },
		})
		if err := errors.Join(err, checkErr, rows.Close()); err != nil {
			t.Error(err)
		}
	})
	return &Store{Engine: e, Meta: about}, deletion.NewExecutor(deletion.ExecutorConfig{Records: records, Store: rows, Find: deletion.FindIn(e.SeriesBefore), RowsPerSecond: 1e9})
}

// read returns all floats of a store, as text.
func read(t *testing.T, s *Store) (all []string) {
	t.Helper()
	set, err := s.Engine.Select(t.Context(), reader.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: Selection{}.named()[0]})
	if err != nil {
		t.Fatal(err)
	}
	for set.Next() {
		for it := set.At().Iterator(nil); it.Next(); {
			for c := it.At().Chunk.Iterator(nil); c.Next() == chunkenc.ValFloat; {
				at, v := c.At()
				all = append(all, fmt.Sprintf("%s %d %x", set.At().Labels(), at-start, math.Float64bits(v)))
			}
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func text(ls string, t int64, v float64) string {
	return fmt.Sprintf("%s %d %x", ls, t, math.Float64bits(v))
}

// all selects everything from start on.
func all() Selection { return Selection{Mint: start, Maxt: start + 3*UnitSpan - 1} }

// noPause notes pauses.
type noPause struct {
	mu     sync.Mutex
	pauses []time.Duration
}

func (p *noPause) pause(ctx context.Context, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 {
		p.pauses = append(p.pauses, d)
	}
	return ctx.Err()
}

// run imports a source with a pause that takes no time.
func run(t *testing.T, source Source, target Target) (Progress, *noPause, error) {
	t.Helper()
	return runAs(t, "test", source, target)
}

// runAs is run of an import with an ID.
func runAs(t *testing.T, id string, source Source, target Target) (Progress, *noPause, error) {
	t.Helper()
	p := new(noPause)
	i := New(Config{Source: source, Target: target, ID: id, Workers: 2, pause: p.pause})
	err := i.Run(t.Context())
	return i.Progress(), p, err
}

// TestVictoriaMetrics: lines of an export come in, with all values that JSON does not know. A source that breaks off, or answers with an
// error, is asked again, and each sample counts once.
func TestVictoriaMetrics(t *testing.T) {
	var requests atomic.Int64
	lines := []string{
		fmt.Sprintf(`{"metric":{"__name__":"a","x":"1"},"values":[1,null,"Infinity","-Infinity",2.5],"timestamps":[%d,%d,%d,%d,%d]}`, start, start+1, start+2, start+3, start+4),
		fmt.Sprintf(`{"metric":{"__name__":"b"},"values":[3,2,1],"timestamps":[%d,%d,%d]}`, start+9, start+8, start+9),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/export" || r.Header.Get("X") != "y" || r.PostFormValue("match[]") != `{__name__=~".+"}` {
			http.Error(w, fmt.Sprintf("%s %v", r.URL, r.Form), http.StatusBadRequest)
			return
		}
		if r.PostFormValue("start") != fmt.Sprint(start) {
			return // the other units are empty
		}
		switch requests.Add(1) {
		case 1:
			http.Error(w, "not now", http.StatusServiceUnavailable)
		case 2:
			io.WriteString(w, lines[0]+"\n"+lines[1][:30])
		default:
			io.WriteString(w, strings.Join(lines, "\n\n"))
		}
	}))
	defer server.Close()
	s := newStore(t)
	source := mustVictoria(t, Server{URL: server.URL + "/", Headers: map[string]string{"X": "y"}}, all())
	defer source.Close()
	p, pauses, err := run(t, source, s)
	if err != nil || p.Units != 3 || p.Finished != 3 || p.Samples != 7 || p.Read != 7 {
		t.Fatalf("%+v, %v", p, err)
	}
	if want := []time.Duration{firstPause, 2 * firstPause}; !slices.Equal(pauses.pauses, want) {
		t.Errorf("pauses %v, want %v", pauses.pauses, want)
	}
	a, b := `{__name__="a", x="1"}`, `{__name__="b"}`
	want := []string{
		text(a, 0, 1), text(a, 1, math.Float64frombits(value.StaleNaN)), text(a, 2, math.Inf(1)), text(a, 3, math.Inf(-1)), text(a, 4, 2.5),
		text(b, 8, 2), text(b, 9, 1),
	}
	if got := read(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The source may have samples by now where it had none.
	if p, _, err := run(t, source, s); err != nil || p.Units != 2 || p.Empty != 2 || p.Skipped != 1 {
		t.Errorf("again: %+v, %v", p, err)
	}
}

// TestSourceDies: a source that does not come back ends the import, and the next one goes on.
func TestSourceDies(t *testing.T) {
	dead := atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dead.Load() && r.PostFormValue("start") != fmt.Sprint(start) {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"metric":{"__name__":"a"},"values":[1],"timestamps":[%s]}`, r.PostFormValue("start"))
	}))
	defer server.Close()
	s := newStore(t)
	source := mustVictoria(t, Server{URL: server.URL}, all())
	defer source.Close()
	dead.Store(true)
	if p, pauses, err := run(t, source, s); err == nil || p.Finished > 1 || len(pauses.pauses) < attempts-1 {
		t.Fatalf("%+v, %v, %v", p, pauses.pauses, err)
	}
	dead.Store(false)
	if p, _, err := run(t, source, s); err != nil || p.Finished+p.Skipped != 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := read(t, s); len(got) != 3 {
		t.Errorf("got %q", got)
	}
}

// serve serves a store by HTTP.
func serve(t *testing.T, s *Store, wrap func(http.Handler) http.Handler) *Client {
	t.Helper()
	server := httptest.NewServer(wrap(NewHandler(func(context.Context) (*Store, error) { return s, nil }, request.NewResponder(log.NewNopLogger(), now))))
	t.Cleanup(server.Close)
	c, err := NewClient(Server{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.pause = new(noPause).pause
	return c
}

// listSource has series in one unit.
type listSource struct {
	VictoriaMetrics
	list []storage.ChunkSeries
	// limit is that of the unit, or 0 for UnitSpan, units how many there are, or 0 for one.
	limit int64
	units int
}

func (s *listSource) Units(context.Context, int64) (units []Unit, _ []error, _ error) {
	for i := range max(s.units, 1) {
		units = append(units, Unit{ID: fmt.Sprint("unit", i), Start: start, Limit: cmp.Or(s.limit, start+UnitSpan)})
	}
	return units, nil, nil
}

func (s *listSource) Open(context.Context, Unit) (*Reading, error) {
	set := &listSet{list: s.list, at: -1}
	return &Reading{ChunkSeriesSet: set, Close: func() error { return nil }}, nil
}

type listSet struct {
	storage.ChunkSeriesSet
	list []storage.ChunkSeries
	at   int
}

func (s *listSet) Next() bool              { s.at++; return s.at < len(s.list) }
func (s *listSet) At() storage.ChunkSeries { return s.list[s.at] }
func (s *listSet) Err() error              { return nil }

// line returns the series of a line of an export.
func line(t *testing.T, metric map[string]string, times ...int64) storage.ChunkSeries {
	t.Helper()
	e := exported{Metric: metric, Timestamps: times, Values: make([]exportedValue, len(times))}
	s, err := e.series()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestClient: an adapter that answers 503, or breaks off, gets a request again. Series that it refuses are named, and what lies outside
// of the unit is left out.
func TestClient(t *testing.T) {
	s := newStore(t)
	var posts atomic.Int64
	c := serve(t, s, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				switch posts.Add(1) {
				case 1:
					http.Error(w, "not now", http.StatusServiceUnavailable)
					return
				case 2:
					next.ServeHTTP(httptest.NewRecorder(), r)
					panic(http.ErrAbortHandler) // stored, and not answered
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	source := &listSource{list: []storage.ChunkSeries{
		line(t, map[string]string{"__name__": "a"}, start-1, start, start+UnitSpan-1, start+UnitSpan),
		line(t, map[string]string{"x": "no name"}, start),
		line(t, map[string]string{"__name__": "long", "x": strings.Repeat("y", 5000)}, start),
	}}
	p, _, err := run(t, source, c)
	if err != nil || p.Samples != 2 || p.Refused != 2 || p.Damaged != 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	name := `{__name__="a"}`
	if got, want := read(t, s), []string{text(name, 0, 0), text(name, UnitSpan-1, 0)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// What was refused may be taken by another version or tenant.
	if p, _, err := run(t, source, c); err != nil || p.Skipped != 0 || p.Refused != 2 {
		t.Errorf("again: %+v, %v", p, err)
	}
	source.list = source.list[:1]
	for _, skipped := range []int{0, 1} {
		if p, _, err := run(t, source, c); err != nil || p.Skipped != skipped {
			t.Errorf("without what is refused: %+v, %v", p, err)
		}
	}
}

// TestNotNoted: a part that left out or refused anything, or had nothing, is taken again by the next import, and brings what is there by
// then. So is all of it if that is asked for.
func TestNotNoted(t *testing.T) {
	a := func(times ...int64) storage.ChunkSeries { return line(t, map[string]string{"__name__": "a"}, times...) }
	ahead := now().UnixMilli() + 1000*series.Window
	for name, list := range map[string][]storage.ChunkSeries{
		"nothing":                         {},
		"a time that will be taken later": {a(start, ahead)},
		"a name":                          {a(start), line(t, map[string]string{"x": "y"}, start)},
		"a key":                           {a(start), line(t, map[string]string{"__name__": "a", "x": strings.Repeat("y", 5000)}, start)},
	} {
		s := newStore(t)
		for _, target := range []Target{s, serve(t, s, func(next http.Handler) http.Handler { return next })} {
			source := &listSource{list: list, limit: ahead + 1}
			if p, _, err := run(t, source, target); err != nil || p.Units != 1 {
				t.Fatalf("%s: %+v, %v", name, p, err)
			}
			source.list = []storage.ChunkSeries{a(start, start+1)}
			if p, _, err := run(t, source, target); err != nil || p.Units != 1 || p.Samples != 2 {
				t.Errorf("%s, into %T: the next import: %+v, %v", name, target, p, err)
			}
			if p, _, err := run(t, source, target); err != nil || p.Units != 0 || p.Skipped != 1 {
				t.Errorf("%s, into %T: the one after it: %+v, %v", name, target, p, err)
			}
			again := New(Config{Source: source, Target: target, ID: "test", Again: true})
			if err := errors.Join(again.Run(t.Context()), target.SetDone(t.Context(), "test")); err != nil || again.Progress().Samples != 2 {
				t.Errorf("%s, into %T: again: %+v, %v", name, target, again.Progress(), err)
			}
		}
	}
}

// TestPendingDeletion: what a deletion that is not finished covers is not taken, as it would be removed with the rest; the error names the
// deletion, and other series and times are taken. What was noted of its times is read again when it is finished.
func TestPendingDeletion(t *testing.T) {
	s, executor := openStore(t)
	c := serve(t, s, func(next http.Handler) http.Handler { return next })
	c.pause = new(noPause).pause
	for _, target := range []Target{s, c} {
		name := fmt.Sprintf("%T", target)[len("*history."):]
		deleted, other := line(t, map[string]string{"__name__": name}, start, start+series.Window), line(t, map[string]string{"__name__": "not" + name}, start)
		both := &listSource{list: []storage.ChunkSeries{deleted, other}}
		if p, _, err := runAs(t, name, both, target); err != nil || p.Samples != 3 {
			t.Fatalf("%+v, %v", p, err)
		}
		if err := s.Engine.Delete(t.Context(), start, start, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := runAs(t, "all", both, target); err == nil || !strings.Contains(err.Error(), backfill.ErrPending.Error()) {
			t.Errorf("%s: %v", name, err)
		}
		later := &listSource{list: []storage.ChunkSeries{line(t, map[string]string{"__name__": name}, start+series.Window), other}}
		if p, _, err := runAs(t, "later", later, target); err != nil || p.Samples != 2 {
			t.Errorf("%s: other times: %+v, %v", name, p, err)
		}
		if err := executor.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{0, 1} {
			if p, _, err := runAs(t, name, both, target); err != nil || p.Skipped != want {
				t.Errorf("%s: after the deletion: %+v, %v", name, p, err)
			}
		}
		var got int
		for _, sample := range read(t, s) {
			if strings.HasPrefix(sample, `{__name__="`+name) {
				got++
			}
		}
		if got != 2 {
			t.Errorf("%s: %d samples", name, got)
		}
	}
}

// TestSilence: a source that does not answer, or not go on, is said to be silent, with its name and the part, and is not while it is not
// asked.
func TestSilence(t *testing.T) {
	for name, opening := range map[string]bool{"at the open": true, "in the middle": false} {
		logged := make(chan struct{})
		var once sync.Once
		var lines bytes.Buffer
		lineLogger := log.NewSyncLogger(log.NewLogfmtLogger(&lines))
		logger := log.LoggerFunc(func(pairs ...any) error {
			err := lineLogger.Log(pairs...)
			if slices.Contains(pairs, any("the source is silent, waiting for it")) {
				once.Do(func() { close(logged) })
			}
			return err
		})
		list := []storage.ChunkSeries{line(t, map[string]string{"__name__": "a"}, start), line(t, map[string]string{"__name__": "b"}, start)}
		source := &silentSource{listSource{list: list}, opening, logged}
		i := New(Config{Source: source, Target: newStore(t), ID: "test", Name: "the one in the cellar", Logger: logger, stall: time.Millisecond})
		if err := i.Run(t.Context()); err != nil || i.Progress().Samples != 2 {
			t.Errorf("%s: %+v, %v", name, i.Progress(), err)
		}
		if text := lines.String(); !strings.Contains(text, "the one in the cellar") || !strings.Contains(text, Unit{Start: start, Limit: start + UnitSpan}.String()) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// A silentSource goes on when that is closed.
type silentSource struct {
	listSource
	opening bool
	until   chan struct{}
}

func (s *silentSource) Open(ctx context.Context, u Unit) (*Reading, error) {
	r, err := s.listSource.Open(ctx, u)
	if s.opening {
		<-s.until
	} else {
		r.ChunkSeriesSet = silentSet{r.ChunkSeriesSet, s.until}
	}
	return r, err
}

type silentSet struct {
	storage.ChunkSeriesSet
	until chan struct{}
}

func (s silentSet) Next() bool {
	<-s.until
	return s.ChunkSeriesSet.Next()
}

// TestHead: samples that only the write-ahead log of a TSDB has are counted and said, unless they are not selected.
func TestHead(t *testing.T) {
	dir := t.TempDir()
	db, err := tsdb.Open(dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	app := db.Appender(t.Context())
	for i := range int64(4 * 60) { // two blocks of two hours, and what follows
		for _, name := range []string{"a", "b"} {
			if _, err := app.Append(0, labels.FromStrings("__name__", name), start+i*60_000, float64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(app.Commit(), db.Compact(t.Context()), db.Close()); err != nil {
		t.Fatal(err)
	}
	sources := NewBlocks([]string{dir}, Selection{Mint: 0, Maxt: math.MaxInt64 - 1})
	p, _, err := run(t, sources, newStore(t))
	if err := errors.Join(err, sources.Close()); err != nil || p.Samples == 0 || p.Samples >= 480 || p.Damaged != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	end := start + p.Samples/2*60_000
	name := func(name string) [][]*labels.Matcher {
		return [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, name)}}
	}
	for _, tt := range []struct {
		sel  Selection
		want int64
	}{
		{Selection{Mint: 0, Maxt: math.MaxInt64 - 1}, 480 - p.Samples},
		{Selection{Mint: 0, Maxt: math.MaxInt64 - 1, Matchers: name("a")}, 240 - p.Samples/2},
		{Selection{Mint: 0, Maxt: math.MaxInt64 - 1, Matchers: name("c")}, 0},
		{Selection{Mint: 0, Maxt: end - 1}, 0},
		{Selection{Mint: 0, Maxt: end}, 2},
	} {
		b := NewBlocks([]string{dir}, tt.sel)
		_, damaged, err := b.Units(t.Context(), 0)
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(damaged); (tt.want == 0) != (len(damaged) == 0) || tt.want > 0 && !strings.Contains(text, fmt.Sprintf(" %d samples", tt.want)) {
			t.Errorf("%+v: %s, want %d", tt.sel, text, tt.want)
		}
	}
}

// TestRefusedOnce: a series that can never be stored is counted once and named once, in however many units, requests and workers it is,
// and none hides another.
func TestRefusedOnce(t *testing.T) {
	s := newStore(t)
	list := []storage.ChunkSeries{line(t, map[string]string{"x": "no name"}, start, start+UnitSpan)}
	for i := range 3 * maxSentences {
		list = append(list, line(t, map[string]string{"__name__": fmt.Sprintf("long%03d", i), "x": strings.Repeat("y", 5000)}, start, start+UnitSpan))
	}
	for _, target := range []Target{s, serve(t, s, func(next http.Handler) http.Handler { return next })} {
		var lines bytes.Buffer
		i := New(Config{Source: &listSource{list: list, units: 5}, Target: target, ID: "test", Workers: 2, Logger: log.NewSyncLogger(log.NewLogfmtLogger(&lines))})
		if err := i.Run(t.Context()); err != nil || i.Progress().Refused != len(list) {
			t.Errorf("%T: %+v, %v, want %d", target, i.Progress(), err, len(list))
		}
		for i, name := range []string{"no name", "long000", fmt.Sprintf("long%03d", len(list)-2)} {
			if n := strings.Count(lines.String(), name); n != 1 {
				t.Errorf("%T: series %d is named %d times", target, i, n)
			}
		}
	}
}

// TestNoNames: a source is asked for series without a metric name, too.
func TestNoNames(t *testing.T) {
	for _, ms := range []Selection{{}, {Matchers: Selection{}.named()}} {
		matched := 0
		for _, of := range ms.named() {
			if len(of) == 1 && of[0].Name == labels.MetricName && of[0].Matches("") {
				matched++
			}
		}
		if matched != 1 {
			t.Errorf("%d selectors", matched)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		for _, text := range r.Form["match[]"] {
			if text == `{__name__=""}` {
				fmt.Fprintf(w, `{"metric":{"x":"no name"},"values":[1],"timestamps":[%d]}`+"\n", start)
				return
			}
		}
	}))
	defer server.Close()
	source := mustVictoria(t, Server{URL: server.URL}, Selection{Mint: start, Maxt: start + 3*UnitSpan - 1})
	p, _, err := run(t, source, newStore(t))
	if err := errors.Join(err, source.Close()); err != nil || p.Refused != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestRedirect: an adapter behind a redirect is an error, and is not taken to have stored what it never got.
func TestRedirect(t *testing.T) {
	c := serve(t, newStore(t), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("moved") {
				next.ServeHTTP(w, r)
				return
			}
			http.Redirect(w, r, r.URL.Path+"?moved&"+r.URL.RawQuery, http.StatusMovedPermanently)
		})
	})
	source := &listSource{list: []storage.ChunkSeries{line(t, map[string]string{"__name__": "a"}, start)}}
	if p, _, err := run(t, source, c); err == nil || !strings.Contains(err.Error(), "301 Moved Permanently to") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestBadRequests: what is no request is a 400, and the client does not send it again.
func TestBadRequests(t *testing.T) {
	s := newStore(t)
	c := serve(t, s, func(next http.Handler) http.Handler { return next })
	for _, bad := range []struct{ method, params, body string }{
		{http.MethodPost, "start=1&limit=x", ""},
		{http.MethodPost, "start=1", ""},
		{http.MethodPost, "start=1&limit=2", "no frame"},
		{http.MethodPost, "start=1&limit=2", "\x05\x00\x00\x00\x00abcde"},
		{http.MethodPost, "start=1&limit=2", aggregatesFrame(t)}, // of days whose samples are kept
		{http.MethodPost, "start=1&limit=2&rolled=true", aggregatesFrame(t)[:20]},
		{http.MethodPut, "id=x", "no JSON"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), bad.method, c.base+Path+"?"+bad.params, strings.NewReader(bad.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%+v: %s", bad, resp.Status)
		}
	}
	damaged, err := chunkenc.FromData(chunkenc.EncHistogram, []byte("\x00\x05\x00\xff\xff\xff"))
	if err != nil {
		t.Fatal(err)
	}
	bad := line(t, map[string]string{"__name__": "a"}, start).(*listSeries)
	bad.chunks[0].Chunk = damaged
	if _, pauses, err := run(t, &listSource{list: []storage.ChunkSeries{bad}}, c); err == nil || !strings.Contains(err.Error(), "400") || len(pauses.pauses) > 0 {
		t.Errorf("a damaged chunk: %v, %v", err, pauses.pauses)
	}
	// In this process the others are stored.
	good := line(t, map[string]string{"__name__": "b"}, start)
	p, _, err := run(t, &listSource{list: []storage.ChunkSeries{bad, good}}, s)
	if err != nil || p.Damaged != 1 || p.Samples != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if p, _, err := run(t, &listSource{list: []storage.ChunkSeries{good}}, s); err != nil || p.Skipped != 0 {
		t.Errorf("after damage: %+v, %v", p, err)
	}
}

// aggregatesFrame returns a frame with a chunk of one aggregate of five minutes.
func aggregatesFrame(t *testing.T) string {
	t.Helper()
	data := binary.AppendUvarint(nil, 300_000)
	for range numAggregates {
		c := chunkenc.NewXORChunk()
		app, err := c.Appender()
		if err != nil {
			t.Fatal(err)
		}
		app.Append(0, 1, 1)
		data = append(append(binary.AppendUvarint(data, uint64(len(c.Bytes()))), byte(chunkenc.EncXOR)), c.Bytes()...)
	}
	frame, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: "a"}}, Chunks: []prompb.Chunk{{MinTimeMs: 1, MaxTimeMs: 1, Type: prompb.Chunk_Encoding(encodingAggregates), Data: data}},
	}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	if _, err := remote.NewChunkedWriter(&body, noFlusher{}).Write(frame); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

// TestPace: a rate bounds what is read, also of what a Client has sent when it ends.
func TestPace(t *testing.T) {
	s := newStore(t)
	times := make([]int64, 1000)
	for i := range times {
		times[i] = start + int64(i)
	}
	for name, target := range map[string]Target{"store": s, "client": serve(t, s, func(next http.Handler) http.Handler { return next })} {
		p := new(noPause)
		i := New(Config{
			Source: &listSource{list: []storage.ChunkSeries{line(t, map[string]string{"__name__": name}, times...)}}, Target: target, ID: name, SamplesPerSecond: 0.1, pause: p.pause,
		})
		if err := i.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last := len(p.pauses) - 1; last < 0 || p.pauses[last] < 2*time.Hour || p.pauses[last] > 10_000*time.Second {
			t.Errorf("%s: pauses %v", name, p.pauses)
		}
	}
}

// TestOddBlockTimes: a block whose times are no times is damaged. One whose times are only wrong is opened for those of its chunks.
func TestOddBlockTimes(t *testing.T) {
	const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, test := range []struct {
		from, to int64
		want     string
	}{
		{math.MaxInt64 - 1, math.MaxInt64, "damaged meta.json"},
		{math.MinInt64, math.MaxInt64, "damaged meta.json"},
		{math.MinInt64, start, "is damaged, or gone"},
	} {
		dir := filepath.Join(t.TempDir(), id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "meta.json"), fmt.Appendf(nil, `{"ulid":%q,"version":1,"minTime":%d,"maxTime":%d}`, id, test.from, test.to), 0o600); err != nil {
			t.Fatal(err)
		}
		source := NewBlocks([]string{dir}, Selection{Mint: math.MinInt64, Maxt: math.MaxInt64 - 1})
		units, damaged, err := source.Units(t.Context(), 0)
		if err := errors.Join(err, source.Close()); err != nil || len(units) > 0 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), test.want) {
			t.Errorf("%d to %d: %d units, %v, %v", test.from, test.to, len(units), damaged, err)
		}
	}
}

// openText returns the source of a text.
func openText(t *testing.T, text []byte, logger log.Logger) (*Text, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := NewOpenMetrics(file, nil, Selection{Mint: 0, Maxt: math.MaxInt64 - 1}, logger)
	if err == nil {
		t.Cleanup(func() {
			if err := o.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(o.temporary); err == nil {
				t.Errorf("%s is left", o.temporary)
			}
		})
	}
	return o, err
}

// TestText: lines that are there twice, out of order or with labels in another order are samples of one series, of which the last one of each
// time is stored, whatever the text is compressed with.
func TestText(t *testing.T) {
	const sec = int(start/1000 + 1)
	var text bytes.Buffer
	fmt.Fprintf(&text, "# TYPE a gauge\n")
	var want []string
	for i := range 3000 {
		fmt.Fprintf(&text, "a{x=\"1\",y=\"2\"} %d %d\n", i, sec+i)
		v := i
		switch i {
		case 7: // the same line again
			fmt.Fprintf(&text, "a{x=\"1\",y=\"2\"} %d %d\n", i, sec+i)
		case 8: // and another value, by another order of labels
			v = 800
			fmt.Fprintf(&text, "a{y=\"2\",x=\"1\"} 800 %d\n", sec+i)
		case 2999: // far out of order
			fmt.Fprintf(&text, "a{x=\"1\",y=\"2\"} -1 %d\n", sec)
		}
		if i == 0 {
			v = -1
		}
		want = append(want, fmt.Sprintf(`{__name__="a", x="1", y="2"} %d %x`, (1+i)*1000, math.Float64bits(float64(v))))
	}
	fmt.Fprintf(&text, "# TYPE b gauge\nb 5 %d\n# EOF\n", sec)
	want = append(want, fmt.Sprintf(`{__name__="b"} 1000 %x`, math.Float64bits(5)))
	packed := map[string][]byte{"plain": text.Bytes()}
	var zipped bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	gz.Write(text.Bytes())
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	packed["gzip"] = zipped.Bytes()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed["zstd"] = encoder.EncodeAll(text.Bytes(), nil)
	for name, text := range packed {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			o, err := openText(t, text, log.NewLogfmtLogger(&logged))
			if err != nil {
				t.Fatal(err)
			}
			s := newStore(t)
			p, _, err := run(t, o, s)
			if err != nil || p.Damaged > 0 || p.Refused > 0 || p.Samples != 3001 {
				t.Fatalf("%+v, %v", p, err)
			}
			if got := read(t, s); !slices.Equal(got, want) {
				t.Errorf("%d samples, want %d; the first are\n%s", len(got), len(want), strings.Join(got[:min(12, len(got))], "\n"))
			}
			if strings.Count(logged.String(), "\n") != 1 || !strings.Contains(logged.String(), "samples=2 ") || !strings.Contains(logged.String(), `x=\"1\"`) {
				t.Errorf("logged:\n%s", &logged)
			}
		})
	}
}

// TestBadText: an error names the file, and the line where there is one.
func TestBadText(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "it is empty"},
		{"only its end", "# EOF\n", "has no samples"},
		{"only metadata", "# TYPE a gauge\n# EOF\n", "has no samples"},
		{"no end", "# TYPE a gauge\na 1 1\n", "line 3: data does not end with # EOF"},
		{"no timestamp", "# TYPE a gauge\na 1 1\na{b=\"c\"} 1\n# EOF\n", `line 3: a sample of a{b="c"} has no timestamp`},
		{"no value", "# TYPE a gauge\na x 1\n# EOF\n", "line 2: "},
		{"gzip that is cut off", "\x1f\x8b\x08", "unexpected EOF"},
		{"zstd that is cut off", "\x28\xb5\x2f\xfd\x00", "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := openText(t, []byte(c.text), log.NewNopLogger())
			if err == nil {
				_, _, err = o.Units(t.Context(), 0)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "text") {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

// TestExternalLabels: series of Thanos' blocks get the labels of their block, and matchers see them. Downsampled blocks are left out.
func TestExternalLabels(t *testing.T) {
	blocks := t.TempDir()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), blocks, UnitSpan)
	if err != nil {
		t.Fatal(err)
	}
	app := w.Appender(t.Context())
	for n := range 2 {
		if _, err := app.Append(0, labels.FromStrings("__name__", "a", "x", fmt.Sprint(n+1)), start+1000, float64(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	id, err := w.Flush(t.Context())
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(blocks, id.String())
	dir := t.TempDir()
	plain, err := os.ReadFile(filepath.Join(made, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, thanos := range []string{
		`{"labels":{"replica":"a","x":"9","__org_id__":"t"},"downsample":{"resolution":0}}`,
		`{"labels":{"replica":"b"}}`,
		`{"labels":{"replica":"c"},"downsample":{"resolution":300000}}`,
	} {
		copied := id
		copied[15] = byte(i)
		to := filepath.Join(dir, copied.String())
		if err := os.CopyFS(to, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(plain), id.String(), copied.String(), 2)
		changed = strings.TrimSuffix(strings.TrimSpace(changed), "}") + `,"thanos":` + thanos + "}"
		if err := os.WriteFile(filepath.Join(to, "meta.json"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		matchers []*labels.Matcher
		want     []string
	}{
		{nil, []string{`{__name__="a", replica="a", x="9"} 1000`, `{__name__="a", replica="b", x="1"} 1000`, `{__name__="a", replica="b", x="2"} 1000`}},
		{[]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "replica", "b"), labels.MustNewMatcher(labels.MatchEqual, "x", "1")}, []string{`{__name__="a", replica="b", x="1"} 1000`}},
		{[]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "replica", "c")}, nil},
	} {
		s := newStore(t)
		sel := Selection{Mint: 0, Maxt: math.MaxInt64 - 1}
		if test.matchers != nil {
			sel.Matchers = [][]*labels.Matcher{test.matchers}
		}
		source := NewBlocks([]string{dir}, sel)
		p, _, err := run(t, source, s)
		if err := errors.Join(err, source.Close()); err != nil || p.Damaged > 0 {
			t.Fatal(p, err)
		}
		var got []string
		for _, line := range read(t, s) {
			got = append(got, line[:strings.LastIndex(line, " ")])
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestDamagedIndex: one flipped bit in the index of a block loses at most a series or two, unless it is in the symbols, which all labels are
// made of. What is stored is what the block had, and what is lost is said, with and without selectors.
func TestDamagedIndex(t *testing.T) {
	blocks := t.TempDir()
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), blocks, UnitSpan)
	if err != nil {
		t.Fatal(err)
	}
	const count = 40
	app := w.Appender(t.Context())
	var want []string
	for n := range count {
		ls := labels.FromStrings("__name__", "a", "x", fmt.Sprintf("%03d", n))
		if _, err := app.Append(0, ls, start+int64(n), float64(n)); err != nil {
			t.Fatal(err)
		}
		want = append(want, text(ls.String(), int64(n), float64(n)))
	}
	err = app.Commit()
	id, flushErr := w.Flush(t.Context())
	if err := errors.Join(err, flushErr, w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(blocks, id.String(), "index")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	toc, err := index.NewTOCFromByteSlice(indexBytes(whole))
	if err != nil {
		t.Fatal(err)
	}
	salvagedSome := 0
	for at := index.HeaderLen; at < len(whole); at += 37 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		sel := all()
		if at%2 == 0 {
			sel.Matchers = [][]*labels.Matcher{{labels.MustNewMatcher(labels.MatchRegexp, "x", "0.*")}}
		}
		s, source := newStore(t), NewBlocks([]string{blocks}, sel)
		p, _, err := run(t, source, s)
		if err := errors.Join(err, source.Close()); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		got := read(t, s)
		for _, sample := range got {
			if !slices.Contains(want, sample) {
				t.Errorf("byte %d: the block has no %s", at, sample)
			}
		}
		if len(got) < count && p.Damaged == 0 {
			t.Errorf("byte %d: %d samples are lost in silence", at, count-len(got))
		}
		if at >= int(toc.Series) && len(got) < count-2 {
			t.Errorf("byte %d of %d, series at %d to %d: only %d samples are stored", at, len(whole), toc.Series, toc.LabelIndices, len(got))
		}
		if len(got) > 0 && p.Damaged > 0 {
			salvagedSome++
		}
	}
	if salvagedSome < 20 {
		t.Errorf("of %d damaged blocks something is stored", salvagedSome)
	}
}

func mustVictoria(t *testing.T, s Server, sel Selection) *VictoriaMetrics {
	t.Helper()
	v, err := NewVictoriaMetrics(s, sel)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
