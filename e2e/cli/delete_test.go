package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

// TestDelete: adapter delete says what would go, and deletes it if that is wanted. The store of
// an adapter that was killed has samples in its log.
func TestDelete(t *testing.T) {
	for _, open := range harness.Backends() {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			now := harness.NowMillis()
			var bases []int64 // of what is deleted: a row has 2^32 milliseconds
			for _, p := range hourly(now, 99, 50).Points {
				bases = append(bases, p.T>>32)
			}
			rows := len(slices.Compact(bases))
			a := harness.StartAdapter(t, b, "--web.enable-admin-api")
			harness.RemoteWrite2().MustSend(t, a.URL("/write"), hourly(now, 99, 0))
			embedded := b.Name == "embedded"
			words := []string{"delete", "--match=hourly", "--match=nothing", fmt.Sprintf("--end=%d.5", now/1000-50*3600)}
			if embedded {
				if code, output := harness.RunCommand(t, b, words...); code == 0 || !harness.ContainsAll(output, []string{"curl -X POST", "delete_series", "match%5B%5D=hourly", "clean_tombstones"}) {
					t.Errorf("while an adapter runs: %d:\n%s", code, output)
				}
			}
			a.Kill(t)
			code, output := harness.RunCommand(t, b, words...)
			if code != 0 || !harness.ContainsAll(output, []string{fmt.Sprintf(`{__name__="hourly"}: 1 series, %d rows, 50 samples, 0 exemplars, `, rows), `{__name__="nothing"}: 0 series, 0 rows, 0 samples`, "nothing is deleted"}) {
				t.Errorf("dry run: %d:\n%s", code, output)
			}
			wantAfter := func(want int) {
				t.Helper()
				a := harness.StartAdapter(t, b)
				wantHours(t, a, now, want)
				a.Terminate(t)
			}
			wantAfter(100)
			if !embedded {
				return // it waits for other adapters, ten minutes
			}
			if code, output := harness.RunCommand(t, b, append(words, "--yes")...); code != 0 || !strings.HasSuffix(strings.TrimSpace(output), "\nremoved") {
				t.Errorf("%d:\n%s", code, output)
			}
			wantAfter(50)
		})
	}
	for _, words := range [][]string{{}, {"--match={"}, {"--match=up", "--start=x"}, {"--match=up", "--start=2", "--end=1"}} {
		if code, output := harness.RunCommand(t, harness.Embedded(t), append([]string{"delete"}, words...)...); code == 0 {
			t.Errorf("%q:\n%s", words, output)
		}
	}
}
