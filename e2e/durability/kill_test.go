package durability

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// awkwardBits are values that arithmetic, text or a careless codec would change.
func awkwardBits() []uint64 {
	return []uint64{
		math.Float64bits(math.Copysign(0, -1)),
		value.StaleNaN,
		value.NormalNaN,
		0x7ff0000000000001, // a signalling NaN that is no staleness marker
		0xfff8000000abcdef, // a negative NaN with a payload
		math.Float64bits(math.Inf(1)),
		math.Float64bits(math.Inf(-1)),
		math.Float64bits(math.SmallestNonzeroFloat64),
		math.Float64bits(-math.MaxFloat64),
		0,
	}
}

// TestKill kills the embedded adapter several times while it is written to. All
// acknowledged samples must be there afterwards, bit for bit, and none that was never sent.
func TestKill(t *testing.T) {
	const rounds, requests = 3, 150 // acknowledged requests of a round, at least
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	a := harness.StartAdapter(t, harness.Embedded(t))
	load := newLoad(4, seed)
	for range harness.Rounds(t, rounds) {
		stop := load.start(a.URL("/api/v1/write"))
		target := load.acknowledged() + requests
		harness.Eventually(t, fmt.Sprintf("%d requests are acknowledged", target), func() error {
			if n := load.acknowledged(); n < target {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
		a.Kill(t)
		stop()
		a.Rerun(t)
	}
	t.Logf("%d requests acknowledged, %d not", load.acknowledged(), load.refused())
	for _, as := range harness.AnswerTypes() {
		load.check(t, a.URL("/api/v1/read"), as)
	}
}

// A load is several senders, each with series of its own.
type load struct{ senders []*sender }

// A sender sends one request after another and records them.
type sender struct {
	rand     *rand.Rand
	protocol harness.Protocol
	next     int64 // time of the next samples
	series   []labels.Labels

	mu          sync.Mutex
	points      []map[harness.Point]bool // by series; true if acknowledged
	acked, lost int
}

// newLoad returns n senders. Half of them send old samples.
func newLoad(n int, seed uint64) *load {
	l := &load{}
	for i := range n {
		s := &sender{rand: rand.New(rand.NewPCG(seed, uint64(i))), protocol: harness.RemoteWrites()[i%2], next: harness.NowMillis()}
		if i >= n/2 {
			s.next -= 90 * 24 * 3600 * 1000
		}
		for j := range 40 {
			name := fmt.Sprintf("kill_%d", i)
			s.series = append(s.series, labels.FromStrings("__name__", name, "job", "kill", "sender", fmt.Sprint(i), "series", fmt.Sprint(j)))
			s.points = append(s.points, map[harness.Point]bool{})
		}
		l.senders = append(l.senders, s)
	}
	return l
}

// start lets all senders send until stop is called.
func (l *load) start(url string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, s := range l.senders {
		running.Go(func() {
			for ctx.Err() == nil {
				s.send(ctx, url)
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// send sends samples of every series and notes the outcome. What was not
// acknowledged is never sent again: it may be there or not.
func (s *sender) send(ctx context.Context, url string) {
	series := make([]harness.SentSeries, len(s.series))
	s.mu.Lock()
	for i := range series {
		points := []harness.Point{{T: s.next, Bits: s.bits()}, {T: s.next + 1, Bits: s.bits()}, {T: s.next + 250, Bits: s.bits()}}
		series[i] = harness.SeriesOf(s.series[i], points...)
		for _, p := range points {
			s.points[i][p] = false
		}
	}
	s.mu.Unlock()
	s.next += 1000
	resp, err := s.protocol.Send(ctx, url, series)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || resp.Status != http.StatusNoContent {
		s.lost++
		return
	}
	s.acked++
	for i := range series {
		for _, p := range series[i].Points {
			s.points[i][p] = true
		}
	}
}

// bits returns the bits of a value, an awkward one half of the time.
func (s *sender) bits() uint64 {
	if awkward := awkwardBits(); s.rand.IntN(2) == 0 {
		return awkward[s.rand.IntN(len(awkward))]
	}
	return s.rand.Uint64()
}

func (l *load) acknowledged() int {
	return l.sum(func(s *sender) int { return s.acked })
}

func (l *load) refused() int {
	return l.sum(func(s *sender) int { return s.lost })
}

func (l *load) sum(count func(*sender) int) int {
	n := 0
	for _, s := range l.senders {
		s.mu.Lock()
		n += count(s)
		s.mu.Unlock()
	}
	return n
}

// check reads every series back.
func (l *load) check(t *testing.T, url string, as prompb.ReadRequest_ResponseType) {
	q := harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "job", "=", "kill")}
	found := map[string][]harness.Point{}
	for _, s := range harness.MustRead(t, url, as, q) {
		found[s.Labels.String()] = s.Points
	}
	for _, s := range l.senders {
		for i, ls := range s.series {
			if err := checkPoints(found[ls.String()], s.points[i], as); err != nil {
				t.Errorf("%v: %s: %v", as, ls, err)
			}
		}
	}
}

// checkPoints wants all acknowledged points among got, and only sent ones.
func checkPoints(got []harness.Point, sent map[harness.Point]bool, as prompb.ReadRequest_ResponseType) error {
	missing := 0
	expected := map[harness.Point]bool{} // as the answer gives it, whether it must be there
	for p, acked := range sent {
		expected[pointIn(p, as)] = acked
		if acked {
			missing++
		}
	}
	var errs []error
	for _, p := range got {
		acked, ok := expected[pointIn(p, as)]
		if !ok {
			errs = append(errs, fmt.Errorf("%v was never sent, or is there twice", p))
		}
		if acked {
			missing--
		}
		delete(expected, pointIn(p, as))
	}
	if missing > 0 {
		errs = append(errs, fmt.Errorf("%d acknowledged samples are missing", missing))
	}
	return errors.Join(errs...)
}

// pointIn returns p as an answer of that type gives it: upstream's encoder
// of samples turns -0 into 0.
func pointIn(p harness.Point, as prompb.ReadRequest_ResponseType) harness.Point {
	if as == harness.Samples && p.Bits == 1<<63 {
		p.Bits = 0
	}
	return p
}
