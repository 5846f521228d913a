package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

const hour = 3_600_000

// hourly has a sample for each hour from so many hours ago until so many hours ago, half an
// hour off, so that none comes near a cut during the test.
func hourly(now int64, from, until int) harness.SentSeries {
	var points []harness.Point
	for n := from; n >= until; n-- {
		points = append(points, harness.PointAt(now-int64(n)*hour-hour/2, float64(n)))
	}
	return harness.SeriesOf(labels.FromStrings("__name__", "hourly"), points...)
}

// wantHours checks that exactly the samples of so many hours are there.
func wantHours(t *testing.T, a *harness.Adapter, now int64, hours int) {
	t.Helper()
	q := harness.Query{Mint: 0, Maxt: now, Matchers: harness.MustMatchers(t, "__name__", "=", "hourly")}
	for _, as := range harness.AnswerTypes() {
		found := harness.MustRead(t, a.URL("/read"), as, q)
		if harness.CountPoints(found) != hours || found[0].Points[0].T != now-int64(hours)*hour+hour/2 {
			t.Errorf("%v: %d samples, want %d", as, harness.CountPoints(found), hours)
		}
	}
	n, err := harness.CountOverTime(a, "hourly", now-1000*hour)
	if err != nil || n != hours {
		t.Errorf("PromQL: %d samples, %v, want %d", n, err, hours)
	}
}

// TestRetention starts adapters with other retentions on what one wrote that was killed. On
// Bigtable schema apply lets them: what it lets Bigtable delete stays hidden after it, and what is younger is shown again. No rollups are made,
// for which samples would wait.
func TestRetention(t *testing.T) {
	const kept, all, raw = 3 * 24, 20 * 24, "--retention.resolution-raw="
	const undeleted = 10*24 - 1 // hours, by the policy of 3 days
	for _, open := range harness.Backends() {
		b := open(t)
		b.Args = append(b.Args, "--retention.resolution-5m=off", "--retention.resolution-1h=off")
		t.Run(b.Name, func(t *testing.T) {
			embedded := strings.HasPrefix(b.Name, "embedded")
			apply := func(flag string) {
				t.Helper()
				if code, output := harness.RunCommand(t, b, "schema", "apply", "--yes", flag); code != 0 {
					t.Fatalf("code %d:\n%s", code, output)
				}
			}
			now := harness.NowMillis()
			a := harness.StartAdapter(t, b)
			harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, all-1, 0))
			wantHours(t, a, now, all)
			a.Kill(t)

			apply(raw + "3d")
			a = harness.StartAdapter(t, b, raw+"3d")
			wantHours(t, a, now, kept)
			if embedded {
				if got := a.Metric(t, "adapter_buffer_replay_dropped_samples_total"); got != all-kept {
					t.Errorf("the replay dropped %v samples, want %d", got, all-kept)
				}
			}
			if cut := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds") * 1000); cut < now-kept*hour || cut > harness.NowMillis()-kept*hour {
				t.Errorf("the cut is %d, now %d", cut, now)
			}
			old := hourly(now, kept, kept)
			for _, p := range harness.RemoteWrites() {
				young := harness.SeriesOf(labels.FromStrings("__name__", "young"), harness.PointAt(now, 1))
				resp, err := p.Send(context.Background(), a.URL("/write"), []harness.SentSeries{old, young})
				if err != nil || resp.Status != http.StatusBadRequest || !harness.ContainsAll(resp.Body, []string{"hourly", fmt.Sprint(old.Points[0].T), "--retention.resolution-raw"}) {
					t.Errorf("an old sample: %v, %v", resp, err)
				}
			}
			if got := harness.MustRead(t, a.URL("/read"), harness.Samples, harness.Query{Maxt: now, Matchers: harness.MustMatchers(t, "__name__", "=", "young")}); harness.CountPoints(got) != 1 {
				t.Errorf("the young sample beside it: %v", got)
			}
			a.Terminate(t)

			apply(raw + "30d")
			a = harness.StartAdapter(t, b, raw+"30d")
			if embedded {
				wantHours(t, a, now, kept)
			} else {
				wantHours(t, a, now, undeleted)
			}
			a.Terminate(t)
			if code, output := harness.RunCommand(t, b, "check"); code != 0 {
				t.Errorf("check says %d:\n%s", code, output)
			}
		})
	}
	if code, output := harness.RunAdapter(t, harness.Backend{}, raw+"2d"); code != 2 || !strings.Contains(output, raw+"2d is too short: give it 3d or more") {
		t.Errorf("code %d:\n%s", code, output)
	}
}

// TestRetentionSize: a store that is too large loses its oldest days, and keeps the newest
// three. No rollups are made, for which they would wait.
func TestRetentionSize(t *testing.T) {
	b := harness.Embedded(t)
	b.Args = append(b.Args, "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	now := harness.NowMillis()
	sent := hourly(now, 20*24, 0)
	a := harness.StartAdapter(t, b)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), sent)
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--retention.size=1GiB")
	wantHours(t, a, now, 20*24+1)
	a.Terminate(t)
	a = harness.StartAdapter(t, b, "--retention.size=1KiB")
	a.WaitLine(t, `msg="the store exceeds --retention.size, its oldest days are deleted"`)
	cut := int64(a.Metric(t, "adapter_retention_cut_timestamp_seconds") * 1000)
	if kept := now - cut; cut%(24*hour) != 0 || kept < 3*24*hour-hour || kept > 4*24*hour {
		t.Errorf("the cut is %d, now %d", cut, now)
	}
	kept := 0
	for _, p := range sent.Points {
		if p.T >= cut {
			kept++
		}
	}
	wantHours(t, a, now, kept)
	harness.Eventually(t, "16 days are deleted", func() error {
		if got := a.Metric(t, "adapter_pebble_sweep_drops_total"); got < 16 {
			return fmt.Errorf("%v days dropped", got)
		}
		return nil
	})
	if got := a.Metric(t, "adapter_retention_size_drops_total"); got < 16 {
		t.Errorf("%v days went because of the size", got)
	}
	bigtable := harness.Backend{Args: []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}}
	if code, output := harness.RunAdapter(t, bigtable, "--retention.size=1GiB"); code != 2 || !strings.Contains(output, "--retention.size is for the embedded store") {
		t.Errorf("code %d:\n%s", code, output)
	}
}

// TestRetentionDeletes: what a retention cuts is deleted from the disk at the next start, and the
// index with it if no rollups need it.
func TestRetentionDeletes(t *testing.T) {
	b := harness.Embedded(t)
	now := harness.NowMillis()
	a := harness.StartAdapter(t, b)
	harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 20*24, 0))
	a.Terminate(t) // All is in the store.
	a = harness.StartAdapter(t, b, "--retention.resolution-raw=3d", "--retention.resolution-5m=off", "--retention.resolution-1h=off")
	harness.Eventually(t, "16 days and the index of two periods are deleted", func() error {
		if got := a.Metric(t, "adapter_pebble_sweep_drops_total"); got < 18 {
			return fmt.Errorf("%v days dropped", got)
		}
		return nil
	})
	if got := a.Metric(t, "adapter_pebble_sweep_dropped_bytes_total"); got <= 0 {
		t.Errorf("%v bytes dropped", got)
	}
	wantHours(t, a, now, 3*24)
}
