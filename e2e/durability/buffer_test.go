package durability

import (
	"context"
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

	"github.com/promtable/promtable/e2e/harness"
)

// segments returns the paths of the log in dir.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	return found
}

// TestBufferKill kills the adapter many times under senders of all kinds, and checks
// samples and current samples after each start.
func TestBufferKill(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) harness.Backend
		args []string
	}{
		{"embedded", harness.Embedded, nil},
		{"embedded, fsync each second", harness.Embedded, []string{"--buffer.fsync=1s"}},
		{"emulator", func(t testing.TB) harness.Backend { return harness.WithBuffer(harness.Emulator(t), t.TempDir()) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const rounds, requests = 3, 10 // of each sender in a round, at least
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			// Current samples however old, and only of the log: no flush helps.
			args := append(tt.args, "--current.lookback=200000h", "--current.flush-interval=24h")
			a := harness.StartAdapter(t, tt.open(t), args...)
			load := newMixedLoad(seed)
			late := 0.0
			for range harness.Rounds(t, rounds) {
				stop := load.start(a.URL("/api/v1/write"))
				load.wait(t, requests)
				late += a.Metric(t, "adapter_buffer_late_samples_total")
				a.Kill(t)
				stop()
				a.Rerun(t)
				load.checkCurrent(t, a.URL("/federate"))
				for _, as := range harness.AnswerTypes() {
					load.check(t, a.URL("/api/v1/read"), as)
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
	return &mixedLoad{load: newLoad(6, seed), began: harness.NowMillis(), requests: make([]int64, 6)}
}

// time returns the time of a request of a sender, of which each has its own.
func (l *mixedLoad) time(sender int, request int64) int64 {
	const second, minute, hour = 1000, 60_000, 3_600_000
	switch sender / 2 {
	case 0: // in order
		return l.began - 24*hour + request*second
	case 1: // back and forth in four windows
		const steps = 4096
		return l.began - 12*hour + request*1777%steps*8*second + request/steps*second
	default: // further and further back; cells of CURRENT expire after 50 days
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
	harness.Eventually(t, fmt.Sprintf("%d more requests of each sender are acknowledged", requests), func() error {
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

// checkCurrent wants of each series the current sample that was acknowledged, or
// a later one that was sent.
func (l *mixedLoad) checkCurrent(t *testing.T, target string) {
	t.Helper()
	body := harness.MustGet(t, target+"?"+url.Values{"match[]": {`{job="kill"}`}}.Encode(), nil).Body
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
			if err := checkCurrentSample(found[fmt.Sprint(i, " ", j)], s.points[j]); err != nil {
				t.Errorf("current sample of %s: %v", ls, err)
			}
		}
	}
}

// checkCurrentSample wants got to be the last acknowledged sample, or a later one
// that was sent. It is a value and a time, or empty for a staleness marker.
func checkCurrentSample(got []string, sent map[harness.Point]bool) error {
	last := harness.Point{T: math.MinInt64}
	for p, acked := range sent {
		if acked && p.T > last.T {
			last = p
		}
	}
	for p := range sent {
		if p.T >= last.T && isSample(got, p) {
			return nil
		}
	}
	return fmt.Errorf("got %v, want %v", got, last)
}

// isSample says whether got, a value and a time, is p.
func isSample(got []string, p harness.Point) bool {
	if p.Bits == value.StaleNaN || len(got) == 0 {
		return p.Bits == value.StaleNaN && len(got) == 0
	}
	v, err := strconv.ParseFloat(got[0], 64)
	want := math.Float64frombits(p.Bits)
	same := v == want || (math.IsNaN(v) && math.IsNaN(want)) // the text has one NaN and one zero
	return err == nil && same && got[1] == fmt.Sprint(p.T)
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
			b := harness.WithBuffer(harness.Embedded(t), t.TempDir())
			a := harness.StartAdapter(t, b)
			want := harness.SendSteps(t, a, 40)
			a.Kill(t)
			logs := segments(t, strings.TrimPrefix(b.Args[len(b.Args)-1], "--buffer.path="))
			path := logs[len(logs)-1]
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, tt.damage(append([]byte(nil), log...)), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.torn {
				a.Rerun(t)
				a.WaitLine(t, "the log ends with a write that was not finished")
				harness.CheckSteps(t, a, want[:len(want)-1])
				return
			}
			harness.CheckRefused(t, b, filepath.Base(path))
			// A refused start changes nothing: with the bytes restored all samples are
			// there.
			if err := os.WriteFile(path, log, 0o600); err != nil {
				t.Fatal(err)
			}
			a.Rerun(t)
			harness.CheckSteps(t, a, want)
		})
	}
}

// TestBufferSwitch turns the buffer off and on again. A direct write overwrites a buffered
// sample. The reverse is not promised: of equal times a cell wins over a chunk.
func TestBufferSwitch(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func(testing.TB) harness.Backend
	}{{"embedded", harness.Embedded}, {"bttest", harness.InProcess}} {
		t.Run(tt.name, func(t *testing.T) {
			plain := tt.open(t)
			dir := t.TempDir()
			buffered, direct := harness.WithBuffer(plain, dir), plain
			direct.Args = append(plain.Args[:len(plain.Args):len(plain.Args)], "--no-buffer.enabled", "--buffer.path="+dir)

			a := harness.StartAdapter(t, buffered)
			want := harness.SendSteps(t, a, 20)
			a.Kill(t)
			segments(t, dir)
			harness.CheckRefused(t, direct, dir, "--buffer.enabled", "stop")

			a = harness.StartAdapter(t, buffered)
			harness.CheckSteps(t, a, want)
			want = writeSteps(t, a, want, 0, 1) // over what the replay stored
			harness.CheckSteps(t, a, want)
			a.Terminate(t)
			if left, err := filepath.Glob(filepath.Join(dir, "*.log")); err != nil || len(left) > 0 {
				t.Errorf("a clean stop leaves %v, %v", left, err)
			}

			a = harness.StartAdapter(t, direct)
			harness.CheckSteps(t, a, want)
			want = writeSteps(t, a, want, 1, 2)
			harness.CheckSteps(t, a, want)
			a.Terminate(t)

			a = harness.StartAdapter(t, buffered)
			harness.CheckSteps(t, a, want)
			want = writeSteps(t, a, want, 3, 4)
			harness.CheckSteps(t, a, want)
			a.Kill(t)
			a.Rerun(t)
			harness.CheckSteps(t, a, want)
		})
	}
}

// writeSteps overwrites two of the points, one in either protocol, and writes one more at
// the end.
func writeSteps(t testing.TB, a *harness.Adapter, have []harness.Point, i, j int) []harness.Point {
	t.Helper()
	have = append([]harness.Point(nil), have...)
	have[i].Bits, have[j].Bits = ^have[i].Bits, ^have[j].Bits
	last := harness.PointAt(have[len(have)-1].T+1, float64(len(have)))
	harness.RemoteWrite1().MustSend(t, a.URL("/write"), harness.SeriesOf(harness.Steps(), have[i]))
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(harness.Steps(), have[j]), harness.SeriesOf(harness.Steps(), last))
	return append(have, last)
}

// TestBufferRefused wants messages that say what to change.
func TestBufferRefused(t *testing.T) {
	for _, fsync := range []string{"nonsense", "-1s", "0s"} {
		t.Run("fsync "+fsync, func(t *testing.T) {
			b := harness.Embedded(t)
			b.Args = append(b.Args, "--buffer.fsync="+fsync)
			harness.CheckRefused(t, b, "--buffer.fsync="+fsync, "always")
		})
	}
	t.Run("two with one log", func(t *testing.T) {
		b := harness.WithBuffer(harness.InProcess(t), t.TempDir())
		a := harness.StartAdapter(t, b)
		harness.CheckRefused(t, b, "held by another process", b.Args[len(b.Args)-1][len("--buffer.path="):])
		harness.CheckSteps(t, a, harness.SendSteps(t, a, 3)) // it lives
		a.Terminate(t)
		harness.StartAdapter(t, b)
	})
}

// TestBufferReads reads while samples arrive and chunks are sealed: acknowledged samples
// are visible at once, and none is there twice.
func TestBufferReads(t *testing.T) {
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := harness.WithBuffer(open(t), t.TempDir())
		t.Run(b.Name, func(t *testing.T) {
			const series, requests, atOnce = 40, 60, 25 // of each series in a request
			a := harness.StartAdapter(t, b)
			first := harness.NowMillis() - 6*harness.ChunkWindow
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
					got, err := harness.CountOverTime(a, "reads", first)
					most, _ := progress()
					if err != nil || got < least || got > most {
						t.Errorf("%d samples, want %d to %d: %v", got, least, most, err)
					}
					reads++
				}
			})
			for n := range int64(requests) {
				batch := make([]harness.SentSeries, series)
				for i := range batch {
					batch[i] = harness.SeriesOf(labels.FromStrings("__name__", "reads", "series", fmt.Sprint(i)))
					for j := n * atOnce; j < (n+1)*atOnce; j++ {
						batch[i].Points = append(batch[i].Points, harness.PointAt(first+j*30_000, float64(j)))
					}
				}
				mu.Lock()
				begun += series * atOnce
				mu.Unlock()
				harness.RemoteWrites()[n%2].MustSend(t, a.URL("/write"), batch...)
				mu.Lock()
				acked += series * atOnce
				mu.Unlock()
				if got, err := harness.CountOverTime(a, "reads", first); err != nil || got != acked {
					t.Fatalf("%d samples after %d were acknowledged: %v", got, acked, err)
				}
			}
			stop()
			if sealed := a.Metric(t, "adapter_buffer_sealed_chunks_total"); sealed < 3*series || reads < 3 {
				t.Errorf("%g chunks sealed, %d reads beside: the test shows nothing", sealed, reads)
			}
		})
	}
}
