package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
)

// An acceptance is one way to run the corpus.
type acceptance struct {
	name     string
	open     func(testing.TB) backend
	args     []string
	protocol protocol
	answer   answer
	shift    int64 // milliseconds from 1970, where the corpus lies
}

// acceptances returns the runs. In 1970 every sample is late; from two hours
// ago on it is partly within the windows that the adapter writes to now, partly
// in the future; and around a base boundary the samples of a series lie in two
// rows.
func acceptances() []acceptance {
	const base, minutes = int64(1) << 32, 60_000
	anyFuture := []string{"--write.max-future=0"}
	return []acceptance{
		{"in 1970", embedded, nil, remoteWrite1(), samples, 0},
		{"now", embedded, anyFuture, remoteWrite2(), streamed, shiftTo(time.Now().Add(-2 * time.Hour))},
		{"over a base boundary", emulator, nil, remoteWrite2(), streamed, 400*base - 10*minutes},
	}
}

// childVariable tells a child of TestAcceptance which run to take, and the URL
// of the adapter.
const childVariable = "E2E_ACCEPTANCE"

// TestAcceptance runs Prometheus' own acceptance corpus through write and read.
// Blocks that need what the adapter does not store yet must fail: they run in a
// child process, because a test cannot want another one to fail.
func TestAcceptance(t *testing.T) {
	blocks := readCorpus(t)
	passing, waiting := split(blocks)
	if run, url, ok := strings.Cut(os.Getenv(childVariable), " "); ok {
		i, err := strconv.Atoi(run)
		if err != nil {
			t.Fatal(err)
		}
		acceptances()[i].run(t, url, waiting)
		return
	}
	t.Run("waiting lists", func(t *testing.T) { checkLists(t, blocks) })
	for i, a := range acceptances() {
		t.Run(a.name, func(t *testing.T) {
			server := startAdapter(t, a.open(t), a.args...)
			a.run(t, server.url(""), passing)
			checkFailing(t, i, server.url(""), waiting)
		})
	}
}

// run runs blocks against the adapter at url, each on a storage of its own.
func (a acceptance) run(t *testing.T, url string, blocks []block) {
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	client := newReadClient(t, url+"/api/v1/read", a.answer)
	for _, b := range blocks {
		t.Run(b.name(), func(t *testing.T) { a.runBlock(t, url, b, engine, client) })
	}
}

func (a acceptance) runBlock(t *testing.T, url string, b block, engine *promql.Engine, client remote.ReadClient) {
	opened := 0
	promqltest.RunTestWithStorage(t, b.text, engine, func(testing.TB) storage.Storage {
		opened++
		name := fmt.Sprintf("%s#%d", b.name(), opened)
		return newCorpusStorage(client, url+"/api/v1/write", a.protocol, name, a.shift)
	})
}

// name is file:line.
func (b block) name() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// split parts the blocks that can pass from those on the waiting lists.
func split(blocks []block) (passing, waiting []block) {
	listed := map[string]bool{}
	for _, list := range waitingLists() {
		for _, line := range list.lines {
			listed[block{file: list.file, line: line}.name()] = true
		}
	}
	for _, b := range blocks {
		if listed[b.name()] {
			waiting = append(waiting, b)
		} else {
			passing = append(passing, b)
		}
	}
	return passing, waiting
}

// checkLists wants every entry of the waiting lists to name a block, and the
// block to load what the entry says.
func checkLists(t *testing.T, blocks []block) {
	exists := map[string]block{}
	for _, b := range blocks {
		exists[b.name()] = b
	}
	for _, list := range waitingLists() {
		for _, line := range list.lines {
			b, ok := exists[block{file: list.file, line: line}.name()]
			if !ok {
				t.Errorf("no block begins at %s:%d", list.file, line)
				continue
			}
			if loaded := b.loaded(t); !loaded[list.reason] {
				t.Errorf("%s loads no %s", b.name(), list.reason)
			}
		}
	}
}

// loaded says which of the things to wait for a block loads.
func (b block) loaded(t *testing.T) map[string]bool {
	var r loadRecorder
	promqltest.RunTestWithStorage(t, b.loads(), nil, func(testing.TB) storage.Storage { return &r })
	return map[string]bool{histograms: r.histograms, startTimestamps: r.starts}
}

// checkFailing runs blocks in a child process and wants each to fail.
func checkFailing(t *testing.T, run int, url string, blocks []block) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestAcceptance$", "-test.v")
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childVariable, run, url))
	output, _ := child.CombinedOutput() // it fails, as it should
	for _, b := range blocks {
		failed := fmt.Sprintf("--- FAIL: TestAcceptance/%s (", b.name())
		passed := fmt.Sprintf("--- PASS: TestAcceptance/%s (", b.name())
		switch {
		case strings.Contains(string(output), passed):
			t.Errorf("%s passes: take it off the list", b.name())
		case !strings.Contains(string(output), failed):
			t.Fatalf("%s did not run:\n%s", b.name(), output)
		}
	}
}
