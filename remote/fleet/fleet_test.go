package fleet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine/indexrows"
	"github.com/promtable/promtable/remote/fleet"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// TestMain wants no goroutine to outlive the tests.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// source is a member whose memory has rows.
type source struct {
	id, token string
	rows      []bucketstore.Row
	asked     atomic.Int64
}

func (s *source) ID() string    { return s.id }
func (s *source) Token() string { return s.token }

func (s *source) ScanOpen(ranges []series.RowRange, chunks bucketstore.FamilyRange, fn func(bucketstore.Row) error) error {
	s.asked.Add(1)
	for _, row := range s.rows {
		if slices.ContainsFunc(ranges, func(r series.RowRange) bool { return r.Contains(row.Key) }) {
			if err := fn(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// world is a store, with one member that is served over HTTP and one that reads.
type world struct {
	*testing.T
	store  bucketstore.Store
	meta   *meta.Store
	member *source
	log    meta.Log
	fleet  *fleet.Fleet
	view   bucketstore.Store
	// other is that of the member. later is how far the clock is ahead.
	other *fleet.Fleet
	later atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, store: bigtabletest.Open(t), member: &source{id: "L", token: "T"}}
	var err error
	if w.meta, err = meta.Open(t.Context(), w.store, series.Schema{}, time.Now); err != nil {
		t.Fatal(err)
	}
	if err := w.meta.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.other = w.open(fleet.Config{Own: w.member.id})
	server := httptest.NewServer(w.other.Serve(w.member))
	t.Cleanup(server.Close)
	w.log = meta.Log{ID: w.member.id, Host: "there", Address: server.URL, Token: w.member.token}
	w.put(w.log)
	w.fleet = w.open(fleet.Config{})
	w.view = w.fleet.Wrap(w.store)
	return w
}

func (w *world) open(cfg fleet.Config) *fleet.Fleet {
	cfg.Meta, cfg.Now = w.meta, func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }
	f := fleet.New(cfg)
	w.Cleanup(func() {
		if err := f.Close(); err != nil {
			w.Error(err)
		}
	})
	return f
}

func (w *world) put(l meta.Log) {
	w.Helper()
	if err := w.meta.PutLog(w.Context(), l); err != nil {
		w.Fatal(err)
	}
}

// qualifier is that of a chunk.
func qualifier(first, last int64) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(first)), uint32(last))
}

func rowKey(base int64) []byte { return series.Schema{}.AppendRowKey(nil, []byte("up"), base) }

// chunk is an open chunk.
func chunk(first, last int64, value string) bucketstore.Cell {
	return bucketstore.Cell{Family: series.FamilyChunk, Qualifier: qualifier(first, last), Value: []byte(value)}
}

// scan returns the cells of a scan as text.
func (w *world) scan(ctx context.Context, families ...string) (text string, err error) {
	req := bucketstore.ScanRequest{Table: bucketstore.Metric, Rows: []series.RowRange{series.SingleRow(rowKey(0)), series.SingleRow(rowKey(series.Period))}}
	for _, family := range families {
		req.Families = append(req.Families, bucketstore.FamilyRange{Family: family})
	}
	err = w.view.Scan(ctx, req, func(row bucketstore.Row) error {
		text += string(row.Key) + ":"
		for _, c := range row.Cells {
			text += " " + c.Family + "=" + string(c.Value)
		}
		text += "\n"
		return nil
	})
	return text, err
}

func (w *world) want(ctx context.Context, want string, families ...string) {
	w.Helper()
	if got, err := w.scan(ctx, families...); err != nil || got != want {
		w.Errorf("found %q, %v, want %q", got, err, want)
	}
}

func (w *world) store1(family, value string, base int64, qualifier []byte) {
	w.Helper()
	err := w.store.Apply(w.Context(), bucketstore.Metric, []bucketstore.Mutation{{Key: rowKey(base), Ops: []bucketstore.Op{
		{Kind: bucketstore.SetCell, Family: family, Qualifier: qualifier, Time: 1, Value: []byte(value)},
	}}})
	if err != nil {
		w.Fatal(err)
	}
}

// TestRollups: rollups of days of which a member has samples are left out, the others are not, and chunks of members are not shown with them.
func TestRollups(t *testing.T) {
	w := newWorld(t)
	const day = rollup.Day
	of := func(day int64) []byte { return binary.BigEndian.AppendUint32(nil, uint32(day*rollup.Day)) }
	for n, value := range []string{"none", "one", "two"} {
		w.store1(rollup.FiveMinutes.Family(), value, 0, of(int64(n)))
	}
	w.store1(rollup.FiveMinutes.Family(), "next", series.Period, of(1))
	w.want(t.Context(), string(rowKey(0))+": 5m=none 5m=one 5m=two\n"+string(rowKey(series.Period))+": 5m=next\n", rollup.FiveMinutes.Family())
	w.member.rows = []bucketstore.Row{{Key: rowKey(0), Cells: []bucketstore.Cell{chunk(day+5, day+7, "open")}}}
	w.want(t.Context(), string(rowKey(0))+": 5m=none 5m=two\n"+string(rowKey(series.Period))+": 5m=next\n", rollup.FiveMinutes.Family())
	w.member.rows[0].Cells = []bucketstore.Cell{chunk(2*day-5, 2*day+7, "open")} // at midnight
	w.want(t.Context(), string(rowKey(0))+": 5m=none\n"+string(rowKey(series.Period))+": 5m=next\n", rollup.FiveMinutes.Family())
}

// TestOpenRows: rows of members come in their place, with the cells that are stored.
func TestOpenRows(t *testing.T) {
	w := newWorld(t)
	second := &source{id: "M", token: "U"}
	server := httptest.NewServer(w.open(fleet.Config{Own: "M"}).Serve(second))
	defer server.Close()
	w.put(meta.Log{ID: "M", Address: server.URL, Token: "U"})
	w.store1(series.FamilyChunk, "stored", series.Period, qualifier(5, 6))
	w.member.rows = []bucketstore.Row{{Key: rowKey(0), Cells: []bucketstore.Cell{chunk(1, 2, "a")}}, {Key: rowKey(series.Period), Cells: []bucketstore.Cell{chunk(9, 9, "b")}}}
	second.rows = []bucketstore.Row{{Key: rowKey(0), Cells: []bucketstore.Cell{chunk(0, 1, "c"), chunk(1, 2, "a")}}, {Key: rowKey(2 * series.Period), Cells: []bucketstore.Cell{chunk(1, 1, "not asked for")}}}
	w.want(t.Context(), string(rowKey(0))+": c=c c=a\n"+string(rowKey(series.Period))+": c=stored c=b\n", series.FamilyChunk)
	asked := w.member.asked.Load()
	w.want(t.Context(), "", "r0")
	if n := w.member.asked.Load(); n != asked {
		t.Errorf("a member is asked %d times for nothing", n-asked)
	}
}

// TestPartial: an answer without a member is refused, or says what it lacks, unless META says that it lacks nothing.
func TestPartial(t *testing.T) {
	w := newWorld(t)
	w.member.rows = []bucketstore.Row{{Key: rowKey(0), Cells: []bucketstore.Cell{chunk(1, 2, "a")}}}
	w.member.token = "another process"
	for _, tt := range []struct {
		name   string
		change func(l *meta.Log)
		lacks  string
	}{
		{"another process answers", func(*meta.Log) {}, "the adapter on there (http://127.0.0.1:"},
		{"it promises nothing so old", func(l *meta.Log) { l.Promise = 2 * series.Period }, ""},
		{"its promise is in the range", func(l *meta.Log) { l.Promise = 2*series.Period - 1 }, "samples from 1970-04-10T"},
		{"META has the other process by now", func(l *meta.Log) { l.Token = "another process" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := w.log
			tt.change(&l)
			w.put(l)
			ctx, _ := fleet.AllowPartial(t.Context())
			for range 2 { // it is noted once
				if _, err := w.scan(ctx, series.FamilyChunk); err != nil {
					t.Error(err)
				}
			}
			lacks := fleet.PartialOf(ctx)
			if len(lacks) > 1 || (len(lacks) == 1) != (tt.lacks != "") || len(lacks) == 1 && !strings.Contains(lacks[0].Error(), tt.lacks) {
				t.Errorf("the answer lacks %q, want %q", lacks, tt.lacks)
			}
			if _, err := w.scan(t.Context(), series.FamilyChunk); errors.Is(err, fleet.ErrPartial) != (tt.lacks != "") {
				t.Errorf("refused: %v", err)
			}
		})
	}
	w.member.token = "none"
	if err := w.meta.RemoveLog(t.Context(), w.log.ID); err != nil {
		t.Fatal(err)
	}
	w.want(t.Context(), "", series.FamilyChunk) // all is stored
}

// TestSync: what a member has indexed is found at once, also if it was unknown, could not be asked or has gone meanwhile.
func TestSync(t *testing.T) {
	w := newWorld(t)
	rows := indexrows.New(w.store)
	open := func(f *fleet.Fleet) *index.Index {
		x := index.New(index.Config{Refresh: time.Hour, Now: time.Now, Indexed: f.Indexed, Sync: f.Sync}, rows)
		f.Join("", x, func([]series.RowRange) []bucketstore.Row { return nil })
		return x
	}
	written, read := open(w.other), open(w.fleet)
	n := 0
	write := func() {
		t.Helper()
		n++
		ls := labels.FromStrings("__name__", "up", "n", strconv.Itoa(n))
		key, err := series.Schema{}.AppendSeriesKey(nil, ls)
		if err == nil {
			err = written.Write(t.Context(), []index.Entry{{Key: key, Labels: ls, T: 5}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, isPartial bool) {
		t.Helper()
		ctx, _ := fleet.AllowPartial(t.Context())
		found, err := read.Select(ctx, index.Query{Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", "up")}, Limit: 10})
		if err != nil || !isPartial && len(found.Series) != n || (len(fleet.PartialOf(ctx)) > 0) != isPartial {
			t.Fatalf("%s: %+v, %v, lacks %q, want %d", when, found, err, fleet.PartialOf(ctx), n)
		}
	}
	want("nothing is there", false)
	for range 3 {
		write()
		want("it is asked", false)
	}
	write()
	write()
	want("of two", false)

	w.member.token = "next" // a process that has what is above from its log
	w.log.Token = "next"
	w.put(w.log)
	write()
	want("another process", false)

	w.member.token = "none"
	write()
	want("it cannot be asked", true)
	write()
	w.log.Promise = 10
	w.put(w.log)
	w.later.Add(int64(2 * time.Second)) // until it is asked again
	want("it cannot be asked, and promises that what it has indexed is stored", false)
	w.log.Promise = 9
	w.put(w.log)
	w.later.Add(int64(2 * time.Second))
	want("its promise does not cover the times", true)
	write()
	if err := w.meta.RemoveLog(t.Context(), w.log.ID); err != nil {
		t.Fatal(err)
	}
	w.later.Add(int64(11 * time.Second))
	want("it could not be asked, and has gone", false)

	w.member.token = "third"
	w.log.Token = "third"
	w.put(w.log)
	w.later.Add(int64(11 * time.Second))
	want("it is back", false)
	write()
	if err := w.meta.RemoveLog(t.Context(), w.log.ID); err != nil {
		t.Fatal(err)
	}
	w.later.Add(int64(11 * time.Second))
	want("it has gone", false)
	want("it has gone", false)
	write() // of one that has come and gone in a longer time
	w.later.Add(int64(25 * time.Second))
	want("it has come and gone unseen", false)
}

// TestLate: a cache is told what members have written late, and dropped when that is not known. It is confirmed only if all have told.
func TestLate(t *testing.T) {
	w := newWorld(t)
	var told []string
	w.fleet = w.open(fleet.Config{
		Own: "own", Joins: true,
		Late: func(l fleet.Late) { told = append(told, fmt.Sprintf("%s %d-%d", l.Tenant, l.Mint, l.Maxt)) },
		Lost: func() { told = append(told, "lost") },
	})
	want := func(when string, isWhole bool, want ...string) {
		t.Helper()
		told = nil
		if got := w.fleet.Confirm(t.Context()); got != isWhole || !slices.Equal(told, want) {
			t.Errorf("%s: confirmed %t, told %q, want %t, %q", when, got, told, isWhole, want)
		}
	}
	write := func(tenant string, times ...int64) {
		var samples []bucketstore.Sample
		for _, t := range times {
			samples = append(samples, bucketstore.Sample{T: t})
		}
		w.other.Written(tenant, samples)
	}
	now := time.Now().UnixMilli()
	write("", 5)
	want("the member is new", true, "lost")
	write("", now, now-100_000, now+5)
	want("nothing is late", true)
	write("a", 9, now, 3)
	write("a", 7, 12)
	want("some are late", true, "a 3-12")
	want("they are told once", true)
	write("b", 1)
	want("another tenant", true, "b 1-1")
	w.other.WrittenBetween("b", 4, 8)
	w.other.WrittenBetween("b", now-60_000, now+5)
	want("history", true, "b 4-8")
	w.other.WrittenBetween("b", 4, now)
	told = nil
	var last int64
	if w.fleet.Confirm(t.Context()); len(told) != 1 {
		t.Errorf("history up to now is told as %q", told)
	} else if _, err := fmt.Sscanf(told[0], "b 4-%d", &last); err != nil || last < now-180_000 || last > now-60_000 {
		t.Errorf("history up to now is told as %q: %v", told, err)
	}
	for n := range int64(1 << 13) { // more than are kept, if each is told alone
		write("c", n)
		if n%2 == 0 {
			w.other.Written("d", []bucketstore.Sample{{T: n}})
		}
	}
	told = nil
	if !w.fleet.Confirm(t.Context()) || len(told) != 2 {
		t.Errorf("many late samples are told as %d spans", len(told))
	}
	w.member.token = "none"
	want("it cannot be asked", false)
	w.member.token = "next"
	w.log.Token = "next"
	w.put(w.log)
	w.later.Add(int64(2 * time.Second))
	want("another process", true, "lost")
	if err := w.meta.RemoveLog(t.Context(), w.log.ID); err != nil {
		t.Fatal(err)
	}
	w.later.Add(int64(11 * time.Second))
	want("it has gone", true, "lost")
	want("it is alone", true)
	w.later.Add(int64(25 * time.Second))
	want("after a pause", true, "lost")

	reader := w.open(fleet.Config{})
	for range 2 { // it does not know yet that there are none, and then it does
		if reader.Confirm(t.Context()) {
			t.Error("a reader without members trusts what it has: others may write that are none")
		}
	}
	w.put(w.log)
	w.later.Add(int64(11 * time.Second))
	if !reader.Confirm(t.Context()) {
		t.Error("a reader does not trust members")
	}
	w.put(meta.Log{ID: "M", Token: "U"})
	w.later.Add(int64(11 * time.Second))
	if reader.Confirm(t.Context()) {
		t.Error("a reader trusts members beside a log that is none")
	}
}

// metaAway is a store whose META cannot be read while away is set.
type metaAway struct {
	bucketstore.Store
	away atomic.Bool
}

func (s *metaAway) Scan(ctx context.Context, req bucketstore.ScanRequest, fn func(bucketstore.Row) error) error {
	if s.away.Load() && req.Table == bucketstore.Meta {
		return errors.New("META is away")
	}
	return s.Store.Scan(ctx, req, fn)
}

// TestMetaAway: while META cannot be read, and the list of members is old, an answer is partial, unless there was never a member.
func TestMetaAway(t *testing.T) {
	for _, tt := range []struct{ hasMember, joins, isPartial bool }{{false, false, false}, {false, true, true}, {true, false, true}} {
		w := newWorld(t)
		if !tt.hasMember {
			if err := w.meta.RemoveLog(t.Context(), w.log.ID); err != nil {
				t.Fatal(err)
			}
		}
		rows := &metaAway{Store: w.store}
		about, err := meta.Open(t.Context(), rows, series.Schema{}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		w.meta = about
		w.fleet = w.open(fleet.Config{Joins: tt.joins})
		w.view = w.fleet.Wrap(w.store)
		scan := func() (lacks int) {
			ctx, _ := fleet.AllowPartial(t.Context())
			if _, err := w.scan(ctx, series.FamilyChunk); err != nil {
				t.Fatal(err)
			}
			if err := w.fleet.Sync(ctx, 10); err != nil {
				t.Fatal(err)
			}
			return len(fleet.PartialOf(ctx))
		}
		if n := scan(); n > 0 {
			t.Errorf("%+v: with META %d are lacking", tt, n)
		}
		rows.away.Store(true)
		if tt.hasMember { // the list is new, but not what a look-up needs
			w.member.token = "none"
			if n := scan(); n == 0 {
				t.Errorf("%+v: a member cannot be asked nor looked up, and nothing is lacking", tt)
			}
		}
		w.later.Add(int64(11 * time.Second))
		if n := scan(); (n > 0) != tt.isPartial {
			t.Errorf("%+v: without META %d are lacking", tt, n)
		}
	}
}

// TestServe: requests that are none, or for another store, are refused.
func TestServe(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPost, "/fleet/v1/open", "nonsense", http.StatusBadRequest},
		{http.MethodPost, "/fleet/v1/indexed", "", http.StatusBadRequest},
		{http.MethodGet, "/fleet/v1/open", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "/fleet/v2/open", "", http.StatusNotFound},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, w.log.Address+tt.path, bytes.NewReader([]byte(tt.body)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != tt.want {
			t.Errorf("%s %s %q: %d, want %d", tt.method, tt.path, tt.body, resp.StatusCode, tt.want)
		}
	}
	if n := w.member.asked.Load(); n > 0 {
		t.Errorf("%d answers", n)
	}
}

// TestHandler: the header of a request decides, and else the default.
func TestHandler(t *testing.T) {
	w := newWorld(t)
	w.member.token = "another process"
	for _, tt := range []struct {
		allow  bool
		header string
		status int
		lacks  string
	}{
		{true, "", 200, "1"}, {false, "", 503, ""}, {true, "deny", 503, ""}, {false, "allow", 200, "1"}, {true, "yes", 400, ""},
	} {
		h := fleet.Handler(tt.allow, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, err := w.scan(r.Context(), series.FamilyChunk)
			rw.Header().Set("Lacks", strings.Repeat("1", len(fleet.PartialOf(r.Context()))))
			if err != nil {
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		if tt.header != "" {
			req.Header.Set(fleet.PartialHeader, tt.header)
		}
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, req)
		if trailer := recorder.Result().Trailer.Get(fleet.PartialHeader); strings.Contains(trailer, "cannot be asked") != (tt.lacks != "") {
			t.Errorf("%t with %q: the trailer says %q", tt.allow, tt.header, trailer)
		}
		if lacks := recorder.Header().Get("Lacks"); recorder.Code != tt.status || lacks != tt.lacks {
			t.Errorf("%t with %q: %d, lacks %q, want %d, %q", tt.allow, tt.header, recorder.Code, lacks, tt.status, tt.lacks)
		}
	}
}
