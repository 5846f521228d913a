package protocol

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// haArgs turn HA on, with a fail-over that a test can wait for.
func haArgs() []string {
	return []string{"--ha.cluster-label=cluster", "--ha.replica-label=__replica__", "--ha.failover=3s"}
}

// A replica sends one sample after the other to one adapter, until it is
// stopped.
type replica struct {
	name  string
	value float64
	to    *harness.Adapter
	stop  func()

	mu sync.Mutex
	// acked are the times of samples that were acknowledged.
	acked []int64
}

// startReplica starts a sender of what it says is {ha_up, cluster="prod"}.
func startReplica(t testing.TB, p harness.Protocol, name string, value float64, to *harness.Adapter) *replica {
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{name: name, value: value, to: to}
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := r.send(p); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	r.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(r.stop)
	return r
}

// send sends one sample. Whether it is stored or left out, the answer must be
// that it is written.
func (r *replica) send(p harness.Protocol) error {
	now := harness.NowMillis()
	s := harness.SentSeries{Labels: []string{"__name__", "ha_up", "__replica__", r.name, "cluster", "prod"}, Points: []harness.Point{harness.PointAt(now, r.value)}}
	resp, err := p.Send(context.Background(), r.to.URL("/api/v1/write"), []harness.SentSeries{s})
	switch written := resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written"); {
	case err != nil:
		return err
	case resp.Status != http.StatusNoContent:
		return fmt.Errorf("replica %s got %v", r.name, resp)
	case p.Name == harness.RemoteWrite2().Name && written != "1":
		return fmt.Errorf("replica %s is told that %q samples are written", r.name, written)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = append(r.acked, now)
	return nil
}

// has says whether p is a sample that was acknowledged.
func (r *replica) has(p harness.Point) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return math.Float64frombits(p.Bits) == r.value && slices.Contains(r.acked, p.T)
}

// electedReplica returns the replica of a cluster that an adapter says is elected.
func electedReplica(t testing.TB, a *harness.Adapter, cluster string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^adapter_ha_elected_replica\{cluster="` + cluster + `",replica="([^"]*)"\} 1$`)
	var names []string
	for _, m := range line.FindAllStringSubmatch(harness.MustGet(t, a.URL("/metrics"), nil).Body, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " and ")
}

// TestHA lets two replicas send to one adapter, and to two on one store, and
// stops the elected one.
func TestHA(t *testing.T) {
	for _, tt := range []struct {
		open     func(testing.TB) harness.Backend
		adapters int
	}{
		{harness.Embedded, 1},
		{harness.Emulator, 2},
	} {
		b := tt.open(t)
		t.Run(fmt.Sprintf("%s, adapters %d", b.Name, tt.adapters), func(t *testing.T) {
			var adapters []*harness.Adapter
			for range tt.adapters {
				adapters = append(adapters, harness.StartAdapter(t, b, haArgs()...))
			}
			replicas := []*replica{
				startReplica(t, harness.RemoteWrite1(), "a", 1, adapters[0]),
				startReplica(t, harness.RemoteWrite2(), "b", 2, adapters[tt.adapters-1]),
			}
			failOver(t, adapters, replicas)
			for _, r := range replicas {
				r.stop()
			}
			checkHA(t, adapters, replicas)
		})
	}
}

// failOver waits until one replica is elected and the other left out, stops it,
// and waits until the other is stored.
func failOver(t *testing.T, adapters []*harness.Adapter, replicas []*replica) {
	var elected, other *replica
	harness.Eventually(t, "one replica is elected and the other left out", func() error {
		first := electedReplica(t, adapters[0], "prod")
		last := electedReplica(t, adapters[len(adapters)-1], "prod")
		if first == "" || first != last {
			return fmt.Errorf("adapters say %q and %q", first, last)
		}
		elected, other = replicas[0], replicas[1]
		if first == other.name {
			elected, other = other, elected
		}
		if n := deduplicated(t, []*harness.Adapter{other.to}); n == 0 {
			return fmt.Errorf("nothing of %s is left out", other.name)
		}
		return nil
	})
	elected.stop()
	harness.Eventually(t, other.name+" has taken over", func() error {
		if got := electedReplica(t, other.to, "prod"); got != other.name {
			return fmt.Errorf("elected is %q", got)
		}
		for _, s := range harness.MustRead(t, other.to.URL("/api/v1/read"), harness.Streamed, harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "ha_up")}) {
			if slices.ContainsFunc(s.Points, other.has) {
				return nil
			}
		}
		return fmt.Errorf("nothing of %s is stored", other.name)
	})
}

// checkHA wants one series, found by whichever replica it is asked for, of
// samples that were acknowledged. Every other that was acknowledged must be
// counted.
func checkHA(t *testing.T, adapters []*harness.Adapter, replicas []*replica) {
	left := deduplicated(t, adapters)
	for _, a := range adapters {
		for _, as := range harness.AnswerTypes() {
			for _, name := range []string{"a", "b"} {
				q := harness.Query{Mint: 0, Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", "ha_up", "cluster", "=", "prod", "__replica__", "=", name)}
				found := harness.MustRead(t, a.URL("/api/v1/read"), as, q)
				if len(found) != 1 || found[0].Labels.String() != `{__name__="ha_up", cluster="prod"}` {
					t.Fatalf("%v: found %v", as, found)
				}
				stored := map[string]int{}
				for _, p := range found[0].Points {
					for _, r := range replicas {
						if r.has(p) {
							stored[r.name]++
						}
					}
				}
				acked := len(replicas[0].acked) + len(replicas[1].acked)
				all := stored["a"] + stored["b"]
				if stored["a"] == 0 || stored["b"] == 0 || all != len(found[0].Points) || all+left != acked {
					t.Errorf("%v: of %d samples acknowledged %v are stored and %d left out; %d were found", as, acked, stored, left, len(found[0].Points))
				}
			}
		}
	}
}

// deduplicated returns how many samples these adapters say they have left out.
func deduplicated(t testing.TB, adapters []*harness.Adapter) (n int) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^adapter_ha_deduplicated_samples_total\{cluster="prod"\} (\S+)$`)
	for _, a := range adapters {
		if m := line.FindStringSubmatch(harness.MustGet(t, a.URL("/metrics"), nil).Body); m != nil {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += int(v)
		}
	}
	return n
}

// TestRefusedHA wants a message that says what to change.
func TestRefusedHA(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no replica label", haArgs()[:1], "--ha.replica-label"},
		{"no cluster label", haArgs()[1:], "--ha.cluster-label"},
		{"equal labels", []string{"--ha.cluster-label=x", "--ha.replica-label=x"}, "--ha.replica-label"},
		{"fail-over alone", haArgs()[2:], "--ha.cluster-label"},
		{"no time", append(haArgs()[:2], "--ha.failover=0s"), "--ha.failover"},
		{"hardly any time", append(haArgs()[:2], "--ha.failover=5ms"), "--ha.failover"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, output := harness.RunAdapter(t, harness.Backend{}, append(tt.args, "--storage.path="+t.TempDir())...)
			if code != 2 || !strings.Contains(output, tt.want) {
				t.Errorf("code %d, output without %q:\n%s", code, tt.want, output)
			}
		})
	}
}
