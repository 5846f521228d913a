package bigtable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

var pause = flag.Duration("pause", 0, "how long TestMembersUnderLoad stops a member, beside the time that it needs")

// members are adapters with buffers on one store that answer as one, and a reader, with all that was sent.
type members struct {
	*testing.T
	all    []*harness.Adapter
	reader *harness.Adapter
	random *rand.Rand
	// sent are the points of each series, by number.
	sent map[int][]harness.Point
	last int64
}

func startMembers(t *testing.T, b harness.Backend, n int) *members {
	t.Helper()
	return startMembersWith(t, b, n, func() []string { return []string{"--buffer.path=" + t.TempDir()} })
}

// startMembersWith starts members with the flags of each.
func startMembersWith(t *testing.T, b harness.Backend, n int, flags func() []string) *members {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &members{T: t, all: make([]*harness.Adapter, n), random: rand.New(rand.NewPCG(seed, 0)), sent: make(map[int][]harness.Point)}
	first := harness.StartAdapter(t, b) // makes the tables
	first.Terminate(t)
	var starting sync.WaitGroup
	for i := range m.all { // each waits until others may know of it
		starting.Go(func() {
			m.all[i] = startMember(t, b, flags()...)
		})
	}
	starting.Go(func() { m.reader = harness.StartAdapter(t, b, "--mode=read") })
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	m.last = harness.NowMillis() - 4*time.Minute.Milliseconds() // /federate shows what is not older than 5 minutes
	return m
}

// startMember starts a member.
func startMember(t *testing.T, b harness.Backend, flags ...string) *harness.Adapter {
	t.Helper()
	return harness.StartAdapter(t, b, append([]string{"--buffer.enabled", "--fleet.listen-address=127.0.0.1:0", "--web.enable-admin-api"}, flags...)...)
}

func memberSeries(n int) labels.Labels {
	return labels.FromStrings("__name__", "fleet", "n", strconv.Itoa(n))
}

// send writes a point of a series to an adapter.
func (m *members) send(a *harness.Adapter, n int) {
	m.Helper()
	m.last += 100 + m.random.Int64N(500)
	p := harness.PointAt(m.last, m.random.Float64())
	harness.RemoteWrites()[m.random.IntN(2)].MustSend(m, a.URL("/api/v1/write"), harness.SeriesOf(memberSeries(n), p))
	m.sent[n] = append(m.sent[n], p)
}

// get asks an adapter for all points of a series by PromQL, and returns them and the warnings.
func (m *members) get(a *harness.Adapter, n int, header map[string]string) (points []harness.Point, warnings []string, status int) {
	m.Helper()
	q := url.Values{"query": {fmt.Sprintf(`fleet{n="%d"}[1h]`, n)}, "time": {harness.FormatSeconds(m.last)}}
	resp, err := harness.RoundTrip(m.Context(), http.MethodGet, a.URL("/api/v1/query?"+q.Encode()), header, nil)
	if err != nil {
		m.Fatal(err)
	}
	var answer struct {
		Warnings []string
		Data     struct {
			Result []struct{ Values [][2]any }
		}
	}
	if resp.Status != http.StatusOK {
		return nil, nil, resp.Status
	}
	if err := json.Unmarshal([]byte(resp.Body), &answer); err != nil {
		m.Fatal(err, resp.Body)
	}
	for _, s := range answer.Data.Result {
		for _, v := range s.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				m.Fatal(err)
			}
			points = append(points, harness.PointAt(int64(v[0].(float64)*1000+0.5), value))
		}
	}
	return points, answer.Warnings, resp.Status
}

// want wants an adapter to answer with all points of a series, by PromQL and remote read, without a warning.
func (m *members) want(when string, a *harness.Adapter, n int) {
	m.Helper()
	points, warnings, status := m.get(a, n, nil)
	if !slices.Equal(points, m.sent[n]) || len(warnings) > 0 || status != http.StatusOK {
		m.Fatalf("%s: series %d has %d points, %d %q, want %d", when, n, len(points), status, warnings, len(m.sent[n]))
	}
	as := harness.AnswerTypes()[m.random.IntN(2)]
	got := harness.MustRead(m, a.URL("/api/v1/read"), as, harness.Query{Mint: 0, Maxt: m.last, Matchers: harness.MustMatchers(m, "__name__", "=", "fleet", "n", "=", strconv.Itoa(n))})
	if d := harness.DiffSeries(got, []harness.TimeSeries{{Labels: memberSeries(n), Points: m.sent[n]}}); d != "" {
		m.Fatalf("%s: %v: %s", when, as, d)
	}
}

// wantCurrent wants an adapter to know the last point of a series, by federation.
func (m *members) wantCurrent(when string, a *harness.Adapter, n int) {
	m.Helper()
	last := m.sent[n][len(m.sent[n])-1]
	want := fmt.Sprintf("} %s %d\n", strconv.FormatFloat(math.Float64frombits(last.Bits), 'g', -1, 64), last.T)
	resp := harness.MustGet(m, a.URL("/federate?"+url.Values{"match[]": {fmt.Sprintf(`fleet{n="%d"}`, n)}}.Encode()), nil)
	if !strings.HasSuffix(resp.Body, want) {
		m.Fatalf("%s: the last point of series %d is %q, want %q", when, n, resp.Body, want)
	}
}

// readStatus returns the status of a remote read of all series, and the trailer that says what it lacks.
func (m *members) readStatus(a *harness.Adapter, header string) (status int, lacks string) {
	m.Helper()
	req, err := harness.NewRead(m.Context(), a.URL("/api/v1/read"), prompb.ReadRequest_SAMPLES, harness.Query{Mint: 0, Maxt: m.last, Matchers: harness.MustMatchers(m, "__name__", "=", "fleet")})
	if err != nil {
		m.Fatal(err)
	}
	if header != "" {
		req.Header.Set("X-Promtable-Partial", header)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		m.Fatal(err)
	}
	return resp.StatusCode, resp.Trailer.Get("X-Promtable-Partial")
}

// TestMembers: what one member has acknowledged every other adapter finds at once, also of series that are new or that several members write. Without a
// member that cannot be asked answers say so, or fail; back, it has all. One that leaves leaves nothing behind.
func TestMembers(t *testing.T) {
	t.Parallel() // it waits for most of its time
	b := harness.Emulator(t)
	m := startMembers(t, b, 3)
	const series = 10
	old := newLateWriter(m, 0, m.random)
	round := func(when string, members []*harness.Adapter, n int) {
		t.Helper()
		for range n {
			of := m.random.IntN(series)
			m.send(members[m.random.IntN(len(members))], of)
			readers := append(slices.Clone(members), m.reader)
			m.want(when, readers[m.random.IntN(len(readers))], of)
			m.wantCurrent(when, readers[m.random.IntN(len(readers))], of)
			if old.all = members; !old.write(t.Context()) {
				t.Fatalf("%s: a late sample is refused, or an answer lacks something", when)
			}
		}
	}
	round("three members", m.all, 100)
	for range 5 { // others have cached what an import changes
		old.write(t.Context())
		if !old.imported(t.Context()) {
			t.Fatal("an answer after an import lacks something")
		}
	}
	for _, b := range []harness.Backend{b, harness.WithBuffer(b, t.TempDir())} {
		if code, output := harness.RunAdapter(t, b); code == 0 || !strings.Contains(output, "beside it all that write have") {
			t.Errorf("an adapter that is no member starts beside members: %d, %s", code, output)
		}
	}
	if code, output := harness.RunAdapter(t, harness.WithBuffer(b, t.TempDir()), "--fleet.listen-address=127.0.0.1:0", "--ha.cluster-label=c", "--ha.replica-label=r"); code == 0 || !strings.Contains(output, "--ha.cluster-label=c --ha.replica-label=r: all members of a fleet need the same") {
		t.Errorf("a member with other labels of HA starts: %d, %s", code, output)
	}

	killed := m.all[2]
	m.send(killed, 0)
	killed.Kill(t)
	for _, a := range []*harness.Adapter{m.all[0], m.reader} {
		if _, warnings, status := m.get(a, 0, nil); status != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], "cannot be asked for its samples from ") {
			t.Errorf("without a member: %d, warnings %q", status, warnings)
		}
		if _, _, status := m.get(a, 0, map[string]string{"X-Promtable-Partial": "deny"}); status != http.StatusServiceUnavailable {
			t.Errorf("without a member, denied: %d", status)
		}
		for header, want := range map[string]int{"": 503, "deny": 503, "allow": 200, "perhaps": 400} {
			if status, lacks := m.readStatus(a, header); status != want || strings.Contains(lacks, "cannot be asked") != (want == 200) {
				t.Errorf("a remote read without a member, %q: %d, lacks %q, want %d", header, status, lacks, want)
			}
		}
	}
	m.send(m.all[0], 1)
	killed.Rerun(t)
	for n := range series {
		m.want("the member is back", m.all[0], n)
		m.want("the member is back", m.reader, n)
	}
	round("after a crash", m.all, 30)

	stopped := m.all[1]
	m.send(stopped, 3)
	stopped.Suspend(t)
	began := time.Now()
	if _, warnings, status := m.get(m.reader, 3, nil); status != http.StatusOK || len(warnings) != 1 || !strings.Contains(warnings[0], "has not answered") {
		t.Errorf("beside a member that is stopped: %d, warnings %q after %s", status, warnings, time.Since(began))
	}
	stopped.Continue(t)
	harness.Eventually(t, "the member that goes on is asked again", func() error {
		if _, warnings, _ := m.get(m.reader, 3, nil); len(warnings) > 0 {
			return fmt.Errorf("%q", warnings)
		}
		return nil
	})
	round("it goes on", m.all, 30)

	m.all[0].Terminate(t)
	for n := range series {
		m.want("a member has left", m.all[1], n)
		m.want("a member has left", m.reader, n)
	}
	round("two members", m.all[1:], 30)
	for _, a := range m.all[1:] {
		a.Terminate(t)
	}
	for n := range series {
		m.want("all have left", m.reader, n)
	}
}

// A lateWriter writes samples of a series that are minutes to hours old, each of another time, and asks for their number over the whole range, as a
// dashboard does.
type lateWriter struct {
	members
	random *rand.Rand
	name   string
	// start and end are on minutes, all samples are between. acknowledged is how many there are at least.
	start, end   int64
	acknowledged int
	used         map[int64]bool
}

// newLateWriter returns one of four hours: its queries read two blocks of cached steps or more, whatever time it is, and a late sample drops one.
func newLateWriter(m *members, number int, r *rand.Rand) *lateWriter {
	end := harness.NowMillis()/60_000*60_000 - 15*time.Minute.Milliseconds()
	return &lateWriter{members: *m, random: r, name: strconv.Itoa(number), start: end - 4*time.Hour.Milliseconds(), end: end, used: make(map[int64]bool)}
}

// write writes a sample and asks any adapter how many there are. It says whether the answer is whole.
func (w *lateWriter) write(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, 10*time.Second)
	defer done()
	p := harness.PointAt(w.start+60_000+w.random.Int64N(w.end-w.start-60_000), 1)
	if w.used[p.T] {
		return true
	}
	w.used[p.T] = true
	protocol := harness.RemoteWrites()[w.random.IntN(2)]
	soon, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	resp, err := harness.Post(soon, w.all[w.random.IntN(len(w.all))].URL("/api/v1/write"), protocol.Header(), protocol.Encode([]harness.SentSeries{harness.SeriesOf(labels.FromStrings("__name__", "late", "writer", w.name), p)}))
	if err != nil || resp.Status != http.StatusNoContent {
		return false
	}
	return w.ask(ctx)
}

// imported is write with an import at any member.
func (w *lateWriter) imported(ctx context.Context) bool {
	at := w.start + 60_000 + w.random.Int64N(w.end-w.start-60_000)
	if !w.used[at] {
		w.used[at] = true
		harness.MustImport(w.T, w.all[w.random.IntN(len(w.all))].URL(""), fmt.Sprintf(`late{writer="%s"} 1 %s`, w.name, harness.FormatSeconds(at)))
	}
	return w.ask(ctx)
}

// ask asks any adapter for the samples, one more of which was acknowledged. It says whether the answer is whole.
func (w *lateWriter) ask(ctx context.Context) bool {
	w.acknowledged++
	readers := append(slices.Clone(w.all), w.reader)
	q := url.Values{"query": {fmt.Sprintf(`count_over_time(late{writer="%s"}[1m])`, w.name)}, "start": {harness.FormatSeconds(w.start)}, "end": {harness.FormatSeconds(w.end)}, "step": {"60"}}
	read, err := harness.RoundTrip(ctx, http.MethodGet, readers[w.random.IntN(len(readers))].URL("/api/v1/query_range?"+q.Encode()), nil, nil)
	if err != nil || read.Status != http.StatusOK || strings.Contains(read.Body, `"warnings"`) {
		return false
	}
	var answer struct {
		Data struct {
			Result []struct{ Values [][2]any }
		}
	}
	if err := json.Unmarshal([]byte(read.Body), &answer); err != nil {
		w.Error(err, read.Body)
		return false
	}
	n := 0
	for _, s := range answer.Data.Result {
		for _, v := range s.Values {
			count, _ := strconv.Atoi(v[1].(string))
			n += count
		}
	}
	if n < w.acknowledged { // what was refused may be there, too
		w.Errorf("of %d late samples of writer %s %d are found", w.acknowledged, w.name, n)
	}
	return true
}

// TestMembersUnderLoad: while one member is killed, one is stopped and one leaves, what any has acknowledged is found at once by another, or the answer says that it
// lacks something. In the end all is there.
func TestMembersUnderLoad(t *testing.T) {
	b := harness.Emulator(t)
	m := startMembers(t, b, 3)
	var sent, asked, lacking, refused, late atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var working sync.WaitGroup
	points := make([][]harness.Point, 4)
	for writer := range points {
		r := rand.New(rand.NewPCG(m.random.Uint64(), 0))
		working.Go(func() {
			ls := labels.FromStrings("__name__", "load", "writer", strconv.Itoa(writer))
			at := harness.NowMillis() - time.Minute.Milliseconds()
			old := newLateWriter(m, writer, r)
			for ctx.Err() == nil {
				if r.IntN(3) == 0 && old.write(ctx) {
					late.Add(1)
				}
				at = max(at+1, harness.NowMillis()-time.Minute.Milliseconds())
				if r.IntN(20) == 0 { // a new series, beside
					ls = labels.FromStrings("__name__", "load", "writer", strconv.Itoa(writer), "new", strconv.Itoa(int(at)))
				}
				p := harness.PointAt(at, float64(at))
				protocol := harness.RemoteWrites()[r.IntN(2)]
				// A member that is stopped does not answer: who waits for it asks nothing of the others.
				soon, done := context.WithTimeout(ctx, 2*time.Second)
				resp, err := harness.Post(soon, m.all[r.IntN(len(m.all))].URL("/api/v1/write"), protocol.Header(), protocol.Encode([]harness.SentSeries{harness.SeriesOf(ls, p)}))
				done()
				if err != nil || resp.Status != http.StatusNoContent {
					refused.Add(1)
					continue // it was not acknowledged
				}
				sent.Add(1)
				points[writer] = append(points[writer], p)
				readers := append(slices.Clone(m.all), m.reader)
				q := url.Values{"query": {fmt.Sprintf(`max(load{writer="%d"})`, writer)}, "time": {harness.FormatSeconds(at)}}
				soon, done = context.WithTimeout(ctx, 10*time.Second)
				read, err := harness.RoundTrip(soon, http.MethodGet, readers[r.IntN(len(readers))].URL("/api/v1/query?"+q.Encode()), nil, nil)
				done()
				switch {
				case err != nil || read.Status != http.StatusOK:
					continue // it has died
				case strings.Contains(read.Body, `"warnings"`):
					lacking.Add(1)
					continue
				}
				asked.Add(1)
				if want := fmt.Sprintf(`"%s"]`, strconv.FormatFloat(float64(at), 'f', -1, 64)); !strings.Contains(read.Body, want) {
					t.Errorf("a point at %d that was acknowledged is not found: %s", at, read.Body)
					return
				}
			}
		})
	}
	// more waits until a count has grown by so many.
	more := func(what string, count *atomic.Int64, by int64) {
		t.Helper()
		to := count.Load() + by
		harness.Eventually(t, what, func() error {
			if n := count.Load(); n < to && !t.Failed() {
				return fmt.Errorf("%d of %d", n, to)
			}
			return nil
		})
	}
	const some = 500
	more("all members answer", &asked, some)
	m.all[0].Kill(t)
	more("answers lack the member that was killed", &lacking, 20)
	m.all[0].Rerun(t)
	more("all members answer again", &asked, some)
	m.all[1].Suspend(t)
	more("answers lack the member that is stopped", &lacking, 4) // each writer may wait for it
	time.Sleep(*pause)
	m.all[1].Continue(t)
	more("all members answer again", &asked, some)
	m.all[2].Terminate(t)
	more("two members answer", &asked, some)
	m.all[2].Rerun(t)
	more("all members answer again", &asked, some)
	stop()
	working.Wait()
	t.Logf("%d points were acknowledged, %d refused; %d answers had the last one, %d said that they lack something", sent.Load(), refused.Load(), asked.Load(), lacking.Load())
	if asked.Load() < 100 || lacking.Load() == 0 || late.Load() < 100 {
		t.Errorf("too little was asked, %d times for late samples, or nothing was ever missing", late.Load())
	}
	hits := 0.0
	for _, a := range append(slices.Clone(m.all), m.reader) {
		hits += a.Metric(t, `adapter_results_cache_steps_total{result="hit"}`)
	}
	if t.Logf("%g steps of answers came from caches", hits); hits == 0 {
		t.Error("nothing was ever cached")
	}
	for _, a := range append(slices.Clone(m.all), m.reader) {
		for writer, want := range points {
			var got []harness.Point
			for _, s := range harness.MustRead(t, a.URL("/api/v1/read"), prompb.ReadRequest_STREAMED_XOR_CHUNKS, harness.Query{Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "load", "writer", "=", strconv.Itoa(writer))}) {
				got = append(got, s.Points...)
			}
			slices.SortFunc(got, func(a, b harness.Point) int { return cmp.Compare(a.T, b.T) })
			for _, p := range want { // what was refused may be there, too
				if _, ok := slices.BinarySearchFunc(got, p, func(a, b harness.Point) int { return cmp.Compare(a.T, b.T) }); !ok {
					t.Fatalf("the point of writer %d at %d is lost", writer, p.T)
				}
			}
		}
	}
}
