package durability

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtable/promtable/e2e/harness"
)

const adminAPI = "--web.enable-admin-api"

// mustDelete deletes samples by the HTTP API.
func mustDelete(t *testing.T, a *harness.Adapter, path string, form url.Values) {
	t.Helper()
	resp, err := harness.RoundTrip(context.Background(), http.MethodPut, a.URL("/api/v1/admin/tsdb/"+path+"?"+form.Encode()), nil, nil)
	if err != nil || resp.Status != http.StatusNoContent {
		t.Fatalf("%s: %v, %v", path, resp, err)
	}
}

// TestDeleteAndKill kills adapters right after deletions: what was deleted does not come back,
// by a replay or otherwise, and what was written after stays. In memory and in the log are
// recent samples and late ones, before and after the deletion in one window.
func TestDeleteAndKill(t *testing.T) {
	for _, mode := range []struct {
		name string
		args []string
	}{{"buffered", nil}, {"direct", []string{"--no-buffer.enabled"}}} {
		t.Run(mode.name, func(t *testing.T) {
			b := harness.Embedded(t)
			a := harness.StartAdapter(t, b, slices.Concat(mode.args, []string{adminAPI})...)
			now := harness.NowMillis()
			first := now - 4*harness.ChunkWindow
			var want, other []harness.Point
			value := 0.0
			names := func(name string) labels.Labels { return labels.FromStrings("__name__", name, "job", "delete") }
			check := func(when string) {
				t.Helper()
				slices.SortFunc(want, func(a, b harness.Point) int { return int(a.T - b.T) })
				for _, as := range harness.AnswerTypes() {
					for name, points := range map[string][]harness.Point{"deleted": want, "other": other} {
						found := harness.MustRead(t, a.URL("/api/v1/read"), as, harness.Query{Maxt: math.MaxInt64, Matchers: harness.MustMatchers(t, "__name__", "=", name)})
						if got := harness.CountPoints(found); got != len(points) || got > 0 && !slices.Equal(found[0].Points, points) {
							t.Errorf("%s, %v: %s has %d samples, want %d: %v, want %v", when, as, name, got, len(points), found, points)
						}
					}
				}
			}
			// Each round overwrites half of the samples of the one before.
			for round := range int64(harness.Rounds(t, 3)) {
				written := make(map[int64]harness.Point)
				for _, at := range []int64{first, first + harness.ChunkWindow, now - 60_000, now - 30_000} {
					for i := range int64(20) {
						value++
						p := harness.PointAt(at+(i+round*10)*1000-30_000, value)
						written[p.T] = p
						harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(names("deleted"), p))
					}
				}
				if round == 0 {
					for _, p := range written {
						other = append(other, p)
					}
					slices.SortFunc(other, func(a, b harness.Point) int { return int(a.T - b.T) })
					harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(names("other"), other...))
				}
				for _, p := range written {
					want = append(slices.DeleteFunc(want, func(w harness.Point) bool { return w.T == p.T }), p)
				}
				check(fmt.Sprint("round ", round, ", written"))
				mustDelete(t, a, "delete_series", url.Values{"match[]": {"deleted"}, "start": {harness.FormatSeconds(first)}})
				want = slices.DeleteFunc(want, func(p harness.Point) bool { return p.T >= first })
				check(fmt.Sprint("round ", round, ", deleted"))
				value++
				again := []harness.Point{harness.PointAt(first+round*1000, value), harness.PointAt(now-60_000-round, value)}
				harness.RemoteWrite2().MustSend(t, a.URL("/write"), harness.SeriesOf(names("deleted"), again...))
				want = append(want, again...)
				check(fmt.Sprint("round ", round, ", written again"))
				a.Kill(t)
				a.Rerun(t)
				check(fmt.Sprint("round ", round, ", after a kill"))
				if round%2 == 0 {
					mustDelete(t, a, "clean_tombstones", nil)
					check(fmt.Sprint("round ", round, ", removed"))
					a.Kill(t)
					a.Rerun(t)
					check(fmt.Sprint("round ", round, ", after another kill"))
				}
			}
			a.Terminate(t)
			if code, output := harness.RunCommand(t, harness.Backend{Args: slices.Concat(b.Args, mode.args), Env: b.Env}, "check"); code != 0 || !strings.Contains(output, "all is well") {
				t.Errorf("check says %d:\n%s", code, output)
			}
		})
	}
}
