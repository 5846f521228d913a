package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
)

// window is how many milliseconds of samples one chunk may cover.
const window = int64(1) << 23

// withBuffer puts a buffer in front of b, with its log in dir.
func withBuffer(b backend, dir string) backend {
	return backend{b.name, append(b.args[:len(b.args):len(b.args)], "--buffer.enabled", "--buffer.path="+dir), b.env}
}

// segments returns the paths of the log in dir.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	return found
}

// refused runs the adapter and wants that it ends, with a last line that
// contains all parts.
func refused(t *testing.T, b backend, parts ...string) {
	t.Helper()
	code, output := runAdapter(t, b)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if last := lines[len(lines)-1]; code == 0 || !containsAll(last, parts) {
		t.Errorf("code %d, last line without %q:\n%s", code, parts, output)
	}
}

// TestBufferKill kills the adapter again and again under senders of all kinds,
// and looks after each start at samples and at newest samples.
func TestBufferKill(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) backend
		args []string
	}{
		{"embedded", embedded, nil},
		{"embedded, fsync each second", embedded, []string{"--buffer.fsync=1s"}},
		{"emulator", func(t testing.TB) backend { return withBuffer(emulator(t), t.TempDir()) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const rounds, requests = 10, 10 // of each sender in a round, at least
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			// Newest samples however old, and only of the log: no flush helps.
			args := append(tt.args, "--current.lookback=200000h", "--current.flush-interval=24h")
			a := startAdapter(t, tt.open(t), args...)
			load := newMixedLoad(seed)
			late := 0.0
			for range rounds {
				stop := load.start(a.url("/api/v1/write"))
				load.wait(t, requests)
				late += a.metric(t, "adapter_buffer_late_samples_total")
				a.kill(t)
				stop()
				a.rerun(t)
				load.checkNewest(t, a.url("/federate"))
				for _, as := range answers() {
					load.check(t, a.url("/api/v1/read"), as)
				}
			}
			t.Logf("%d requests acknowledged, %d not; %g samples were late", load.acknowledged(), load.refused(), late)
			if late == 0 {
				t.Error("no sample was late: the test shows less than it should")
			}
		})
	}
}

// A mixedLoad is a load of senders of three kinds, of each one of both
// protocols.
type mixedLoad struct {
	*load
	began    int64
	requests []int64 // by sender
}

func newMixedLoad(seed uint64) *mixedLoad {
	return &mixedLoad{load: newLoad(6, seed), began: nowMillis(), requests: make([]int64, 6)}
}

// time returns the time of a request of a sender, of which each has its own.
func (l *mixedLoad) time(sender int, request int64) int64 {
	const second, minute, hour = 1000, 60_000, 3_600_000
	switch sender / 2 {
	case 0: // in order
		return l.began - 24*hour + request*second
	case 1: // to and fro in four windows
		const steps = 4096
		return l.began - 12*hour + request*1777%steps*8*second + request/steps*second
	default: // further and further back; CURRENT forgets after 50 days
		return l.began - 20*24*hour - request*20*minute
	}
}

// start lets all senders send until stop is called.
func (l *mixedLoad) start(url string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i, s := range l.senders {
		running.Go(func() {
			for ; ctx.Err() == nil; l.requests[i]++ {
				s.next = l.time(i, l.requests[i])
				s.send(ctx, url)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// wait waits until each sender has so many more requests acknowledged.
func (l *mixedLoad) wait(t *testing.T, requests int) {
	t.Helper()
	targets := make([]int, len(l.senders))
	for i, s := range l.senders {
		targets[i] = s.acknowledged() + requests
	}
	eventually(t, fmt.Sprintf("%d more requests of each sender are acknowledged", requests), func() error {
		for i, s := range l.senders {
			if n := s.acknowledged(); n < targets[i] {
				return fmt.Errorf("%d of %d are, of sender %d", n, targets[i], i)
			}
		}
		return nil
	})
}

// acknowledged is how many requests were.
func (s *sender) acknowledged() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked
}

// checkNewest wants of each series the newest sample that was acknowledged, or
// a later one that was sent.
func (l *mixedLoad) checkNewest(t *testing.T, target string) {
	t.Helper()
	body := mustGet(t, target+"?"+url.Values{"match[]": {`{job="kill"}`}}.Encode(), nil).body
	line := regexp.MustCompile(`(?m)^\w+\{job="kill",sender="(\d+)",series="(\d+)",instance=""\} (\S+) (\d+)$`)
	found := map[string][]string{}
	for _, m := range line.FindAllStringSubmatch(body, -1) {
		found[m[1]+" "+m[2]] = m[3:]
	}
	if len(found) == 0 {
		t.Fatalf("no samples in\n%s", body)
	}
	for i, s := range l.senders {
		for j, ls := range s.series {
			if err := checkNewest(found[fmt.Sprint(i, " ", j)], s.points[j]); err != nil {
				t.Errorf("newest of %s: %v", ls, err)
			}
		}
	}
}

// checkNewest takes a value and a time, or nothing, which stands for a staleness
// marker.
func checkNewest(got []string, sent map[point]bool) error {
	newest := point{t: math.MinInt64}
	for p, acked := range sent {
		if acked && p.t > newest.t {
			newest = p
		}
	}
	for p := range sent {
		if p.t >= newest.t && isNewest(got, p) {
			return nil
		}
	}
	return fmt.Errorf("got %v, want %v", got, newest)
}

func isNewest(got []string, p point) bool {
	if p.bits == value.StaleNaN || len(got) == 0 {
		return p.bits == value.StaleNaN && len(got) == 0
	}
	v, err := strconv.ParseFloat(got[0], 64)
	want := math.Float64frombits(p.bits)
	same := v == want || (math.IsNaN(v) && math.IsNaN(want)) // the text has one NaN and one zero
	return err == nil && same && got[1] == fmt.Sprint(p.t)
}

// TestBufferDamage damages the log of an adapter that was killed.
func TestBufferDamage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(log []byte) []byte
		torn   bool // the last write is lost and nothing else; if not set, the start is refused
	}{
		{"a bit in the first half", func(log []byte) []byte { log[len(log)/4] ^= 4; return log }, false},
		{"a byte in the middle", func(log []byte) []byte { log[len(log)/2] ^= 0xff; return log }, false},
		{"the head", func(log []byte) []byte { log[0] ^= 0x20; return log }, false},
		{"bytes lost in the middle", func(log []byte) []byte { return append(log[:len(log)/2], log[len(log)/2+7:]...) }, false},
		{"the last byte cut off", func(log []byte) []byte { return log[:len(log)-1] }, true},
		{"more cut off", func(log []byte) []byte { return log[:len(log)-20] }, true},
		{"the end never written", func(log []byte) []byte { clear(log[len(log)-20:]); return log }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := withBuffer(embedded(t), t.TempDir())
			a := startAdapter(t, b)
			want := sendSteps(t, a, 40)
			a.kill(t)
			logs := segments(t, strings.TrimPrefix(b.args[len(b.args)-1], "--buffer.path="))
			path := logs[len(logs)-1]
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, tt.damage(append([]byte(nil), log...)), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.torn {
				a.rerun(t)
				a.waitLine(t, "the log ends with a write that was not finished")
				checkSteps(t, a, want[:len(want)-1])
				return
			}
			refused(t, b, filepath.Base(path))
			// What was refused is untouched: with the bytes back all is there.
			if err := os.WriteFile(path, log, 0o600); err != nil {
				t.Fatal(err)
			}
			a.rerun(t)
			checkSteps(t, a, want)
		})
	}
}

// steps is the series that sendSteps writes to.
func steps() labels.Labels { return labels.FromStrings("__name__", "steps", "job", "buffer") }

// sendSteps sends n requests, one after the other, and returns what was in them.
func sendSteps(t testing.TB, a *adapter, n int) (all []point) {
	t.Helper()
	now := nowMillis()
	for i := range int64(n) {
		p := point{t: now - 1000*int64(n) + 1000*i, bits: uint64(0x3ff1_2345_6789_abcd) * uint64(i+1)}
		remoteWrites()[i%2].mustSend(t, a.url("/write"), sent(steps(), p))
		all = append(all, p)
	}
	return all
}

func checkSteps(t testing.TB, a *adapter, want []point) {
	t.Helper()
	for _, as := range answers() {
		got := mustRead(t, a.url("/read"), as, query{0, math.MaxInt64, mustMatchers(t, "__name__", "=", "steps")})
		if d := diff(got, []timeSeries{{steps(), want}}); d != "" {
			t.Fatalf("%v: %s", as, d)
		}
	}
}

// TestBufferSwitch takes the buffer away and puts it back. A sample written to
// directly after it was buffered is overwritten. The reverse is not promised: of
// equal times a cell wins over a chunk.
func TestBufferSwitch(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) backend
	}{{"embedded", embedded}, {"bttest", inProcess}} {
		t.Run(tt.name, func(t *testing.T) {
			plain := tt.open(t)
			dir := t.TempDir()
			buffered, direct := withBuffer(plain, dir), plain
			direct.args = append(plain.args[:len(plain.args):len(plain.args)], "--no-buffer.enabled", "--buffer.path="+dir)

			a := startAdapter(t, buffered)
			want := sendSteps(t, a, 20)
			a.kill(t)
			segments(t, dir)
			refused(t, direct, dir, "--buffer.enabled", "stop")

			a = startAdapter(t, buffered)
			checkSteps(t, a, want)
			want = writeSteps(t, a, want, 0, 1) // over what the replay stored
			checkSteps(t, a, want)
			a.terminate(t)
			if left, err := filepath.Glob(filepath.Join(dir, "*.log")); err != nil || len(left) > 0 {
				t.Errorf("a clean stop leaves %v, %v", left, err)
			}

			a = startAdapter(t, direct)
			checkSteps(t, a, want)
			want = writeSteps(t, a, want, 1, 2)
			checkSteps(t, a, want)
			a.terminate(t)

			a = startAdapter(t, buffered)
			checkSteps(t, a, want)
			want = writeSteps(t, a, want, 3, 4)
			checkSteps(t, a, want)
			a.kill(t)
			a.rerun(t)
			checkSteps(t, a, want)
		})
	}
}

// writeSteps overwrites the points at two places, one of either protocol, and
// writes one more at the end.
func writeSteps(t testing.TB, a *adapter, have []point, i, j int) []point {
	t.Helper()
	have = append([]point(nil), have...)
	have[i].bits, have[j].bits = ^have[i].bits, ^have[j].bits
	last := at(have[len(have)-1].t+1, float64(len(have)))
	remoteWrite1().mustSend(t, a.url("/write"), sent(steps(), have[i]))
	remoteWrite2().mustSend(t, a.url("/write"), sent(steps(), have[j]), sent(steps(), last))
	return append(have, last)
}

// TestBufferRefused wants messages that say what to change.
func TestBufferRefused(t *testing.T) {
	for _, fsync := range []string{"nonsense", "-1s", "0s"} {
		t.Run("fsync "+fsync, func(t *testing.T) {
			b := embedded(t)
			b.args = append(b.args, "--buffer.fsync="+fsync)
			refused(t, b, "--buffer.fsync="+fsync, "always")
		})
	}
	t.Run("two with one log", func(t *testing.T) {
		b := withBuffer(inProcess(t), t.TempDir())
		a := startAdapter(t, b)
		refused(t, b, "held by another process", b.args[len(b.args)-1][len("--buffer.path="):])
		checkSteps(t, a, sendSteps(t, a, 3)) // it lives
		a.terminate(t)
		startAdapter(t, b)
	})
}

// TestBufferCost holds the buffer to its word on Bigtable: row mutations. The
// samples are of the past, in order: such go through open chunks, too.
func TestBufferCost(t *testing.T) {
	const (
		series   = 200
		interval = 15_000
		samples  = 2 * int(window/interval) // of a series: of two windows
		limit    = 0.02                     // row mutations for a sample
	)
	b := emulator(t)
	a := startAdapter(t, withBuffer(b, t.TempDir()), "--current.flush-interval=24h")
	mutations := func(table string) int {
		return int(a.metric(t, `adapter_bigtable_mutations_total\{result="success",table="`+table+`"\}`))
	}
	before := mutations("METRIC")
	first := (nowMillis()-30*window)&^(window-1) + 1
	const atOnce = 43 // samples of a series in a request
	for n := 0; n < samples; n += atOnce {
		batch := make([]sentSeries, series)
		for i := range batch {
			ls := labels.FromStrings("__name__", "cost", "job", "buffer", "series", fmt.Sprint(i))
			batch[i] = sent(ls)
			for j := n; j < min(n+atOnce, samples); j++ {
				batch[i].points = append(batch[i].points, at(first+interval*int64(j), float64(j*i)))
			}
		}
		remoteWrite2().mustSend(t, a.url("/write"), batch...)
	}
	// All is in the store once an adapter without the buffer finds it.
	direct := startAdapter(t, b, "--no-buffer.enabled", "--buffer.path="+t.TempDir())
	eventually(t, "the clock has sealed all", func() error {
		if got := countPoints(mustRead(t, direct.url("/read"), streamed, query{0, math.MaxInt64, mustMatchers(t, "__name__", "=", "cost")})); got != series*samples {
			return fmt.Errorf("%d of %d samples", got, series*samples)
		}
		return nil
	})
	metric := mutations("METRIC") - before
	t.Logf("%d samples: METRIC %d row mutations (%.4f of each), INDEX %d, CURRENT %d", series*samples, metric,
		float64(metric)/float64(series*samples), mutations("INDEX"), mutations("CURRENT"))
	if metric < 2 || float64(metric) > limit*float64(series*samples) {
		t.Errorf("%d samples cost %d row mutations", series*samples, metric)
	}
}

// TestBufferReads reads while samples come and chunks are sealed: what is
// acknowledged is there at once, and nothing is there twice.
func TestBufferReads(t *testing.T) {
	for _, open := range []func(testing.TB) backend{embedded, emulator} {
		b := withBuffer(open(t), t.TempDir())
		t.Run(b.name, func(t *testing.T) {
			const series, requests, atOnce = 40, 60, 25 // of each series in a request
			a := startAdapter(t, b)
			first := nowMillis() - 6*window
			var mu sync.Mutex
			var begun, acked int
			progress := func() (int, int) {
				mu.Lock()
				defer mu.Unlock()
				return begun, acked
			}
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			stop := func() {
				cancel()
				running.Wait()
			}
			defer stop()
			reads := 0
			running.Go(func() {
				for ctx.Err() == nil && !t.Failed() {
					_, least := progress()
					got, err := countOverTime(a, "reads", first)
					most, _ := progress()
					if err != nil || got < least || got > most {
						t.Errorf("%d samples, want %d to %d: %v", got, least, most, err)
					}
					reads++
				}
			})
			for n := range int64(requests) {
				batch := make([]sentSeries, series)
				for i := range batch {
					batch[i] = sent(labels.FromStrings("__name__", "reads", "series", fmt.Sprint(i)))
					for j := n * atOnce; j < (n+1)*atOnce; j++ {
						batch[i].points = append(batch[i].points, at(first+j*30_000, float64(j)))
					}
				}
				mu.Lock()
				begun += series * atOnce
				mu.Unlock()
				remoteWrites()[n%2].mustSend(t, a.url("/write"), batch...)
				mu.Lock()
				acked += series * atOnce
				mu.Unlock()
				if got, err := countOverTime(a, "reads", first); err != nil || got != acked {
					t.Fatalf("%d samples after %d were acknowledged: %v", got, acked, err)
				}
			}
			stop()
			if sealed := a.metric(t, "adapter_buffer_sealed_chunks_total"); sealed < 3*series || reads < 3 {
				t.Errorf("%g chunks sealed, %d reads beside: the test shows nothing", sealed, reads)
			}
		})
	}
}

// countOverTime counts the samples of a metric since first.
func countOverTime(a *adapter, metric string, first int64) (int, error) {
	now := nowMillis()
	query := fmt.Sprintf("sum(count_over_time(%s[%dms]))", metric, now-first+1)
	data, err := api(a.url("/api/v1/query"), url.Values{"query": {query}, "time": {seconds(now)}})
	if err != nil {
		return 0, err
	}
	var answer struct {
		Result []struct{ Value [2]any }
	}
	if err := json.Unmarshal(data, &answer); err != nil || len(answer.Result) == 0 {
		return 0, err
	}
	return strconv.Atoi(answer.Result[0].Value[1].(string))
}
