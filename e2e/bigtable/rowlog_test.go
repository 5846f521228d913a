package bigtable

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/e2e/harness"
)

// TestRowLogs: members without a disk. When one is killed, or suspended for long, another one takes its log, and every sample that it has acknowledged is there again. One
// that was only suspended ends when it goes on. One that stops leaves no log. And a row of LOG has the requests of 50 ms.
func TestRowLogs(t *testing.T) {
	t.Parallel() // it waits for most of its time
	const series = 200
	b := harness.Emulator(t)
	m := startMembersWith(t, b, 3, func() []string { return []string{"--buffer.log=bigtable"} })
	samples := 0
	round := func(when string, n int, members ...*harness.Adapter) {
		t.Helper()
		for range n {
			of := m.random.IntN(series)
			m.send(members[m.random.IntN(len(members))], of)
			samples++
			readers := append(slices.Clone(members), m.reader)
			m.want(when, readers[m.random.IntN(len(readers))], of)
		}
	}
	left, killed, suspended := m.all[0], m.all[1], m.all[2]
	round("three members", 200, m.all...)
	logs := func() string {
		t.Helper()
		code, output := harness.RunAdapter(t, b, "buffer", "list")
		if code != 0 {
			t.Fatalf("buffer list: %d, %s", code, output)
		}
		return output
	}
	if got := strings.Count(logs(), "table LOG"); got != 3 {
		t.Errorf("%d logs: %s", got, logs())
	}
	killed.Kill(t)
	suspended.Suspend(t)
	if _, warnings, status := m.get(left, 0, nil); status != http.StatusOK || len(warnings) == 0 {
		t.Errorf("without two members: %d, warnings %q", status, warnings)
	}
	err := left.Await(t.Context(), harness.Wait{Limit: 6 * time.Minute, Pause: time.Second}, "takes the logs of two members", func() error {
		if got := left.Metric(t, "adapter_buffer_adopted_logs_total"); got != 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for of := range series {
		if len(m.sent[of]) > 0 {
			m.want("after two logs were taken", []*harness.Adapter{left, m.reader}[of%2], of)
		}
	}
	round("with one member", 50, left)
	suspended.Continue(t)
	late := []harness.SentSeries{harness.SeriesOf(memberSeries(0), harness.PointAt(m.last+1, 1))}
	if resp, err := harness.RemoteWrite2().Send(t.Context(), suspended.URL("/api/v1/write"), late); err == nil && resp.Status/100 == 2 {
		t.Errorf("a member whose log was taken acknowledges: %d %s", resp.Status, resp.Body)
	}
	suspended.WaitUndone(t)
	came := startMember(t, b, "--buffer.log=bigtable")
	round("with a member that came", 100, left, came)
	left.Terminate(t)
	round("with another member", 50, came)
	came.Terminate(t)
	if got := logs(); strings.Contains(got, "LOG,") {
		t.Errorf("logs stay: %s", got)
	}
	direct := harness.StartAdapter(t, b)
	for of := range series {
		if len(m.sent[of]) > 0 {
			m.want("without members", direct, of)
		}
	}
}
