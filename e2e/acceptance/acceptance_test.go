package acceptance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/e2e/harness"
)

// An acceptance is one way to run the corpus.
type acceptance struct {
	name     string
	open     func(testing.TB) harness.Backend
	args     []string
	protocol harness.Protocol
	answer   prompb.ReadRequest_ResponseType
	shift    int64 // milliseconds from 1970, where the corpus lies
	rounds   int   // in how many rounds all blocks run, of which E2E_ROUNDS says how many there are
}

// acceptances returns the runs: both protocols with both answers, at three times.
// In 1970 every sample is late. From two hours ago on it is partly within the
// windows that the adapter writes to now, partly in the future. Around a base
// boundary the samples of a series lie in two rows. The emulator takes four times
// as long as the embedded store, so that one run has it, of a third of the blocks at random.
func acceptances() []acceptance {
	const base, minutes = int64(1) << 32, 60_000
	anyFuture := []string{"--write.max-future=0"}
	now := shiftTo(time.Now().Add(-2 * time.Hour))
	return []acceptance{
		{"in 1970", harness.Embedded, nil, harness.RemoteWrite1(), harness.Samples, 0, 1},
		{"now", harness.Embedded, anyFuture, harness.RemoteWrite2(), harness.Streamed, now, 1},
		{"now, older protocols", harness.Embedded, anyFuture, harness.RemoteWrite1(), harness.Streamed, now, 1},
		{"over a base boundary", harness.Emulator, nil, harness.RemoteWrite2(), harness.Streamed, 400*base - 10*minutes, 3},
		{"over a base boundary, older answer", harness.Embedded, nil, harness.RemoteWrite2(), harness.Samples, 400*base - 10*minutes, 1},
	}
}

// childVariable is the environment variable with the run of a child of TestAcceptance and
// the URL of the adapter.
const childVariable = "E2E_ACCEPTANCE"

// TestAcceptance runs Prometheus' own acceptance corpus through write and read.
// The exceptions must fail: they run in a child process, because a test cannot
// want another one to fail.
func TestAcceptance(t *testing.T) {
	blocks := readCorpus(t)
	if run, url, ok := strings.Cut(os.Getenv(childVariable), " "); ok {
		i, err := strconv.Atoi(run)
		if err != nil {
			t.Fatal(err)
		}
		a := acceptances()[i]
		_, excepted := a.split(blocks)
		a.run(t, url, excepted)
		return
	}
	for i, a := range acceptances() {
		t.Run(a.name, func(t *testing.T) {
			passing, excepted := a.split(a.some(t, blocks))
			server := harness.StartAdapter(t, a.open(t), a.args...)
			a.run(t, server.URL(""), passing)
			if a.hasStarts() {
				return // nothing is excepted
			}
			a.checkFailing(t, i, server.URL(""), excepted)
		})
	}
}

// some returns the blocks of so many rounds as E2E_ROUNDS says, or of one, beginning with a random one.
func (a acceptance) some(t *testing.T, blocks []block) (chosen []block) {
	t.Helper()
	first, rounds := rand.IntN(a.rounds), harness.Rounds(t, 1)
	for i, b := range blocks {
		if (i+first)%a.rounds < rounds {
			chosen = append(chosen, b)
		}
	}
	t.Logf("%d of %d blocks", len(chosen), len(blocks))
	return chosen
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
		name := fmt.Sprintf("%s#%d of %d", b.name(), opened, os.Getpid()) // a child loads the same at other times
		return newCorpusStorage(client, url+"/api/v1/write", a.protocol, name, a.shift)
	})
}

// name is file:line.
func (b block) name() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

// split parts the evaluations that must pass from the exceptions of this run.
func (a acceptance) split(blocks []block) (passing, excepted []block) {
	for _, b := range blocks {
		lines := a.excepted(b)
		passing = append(passing, b.evaluating(func(line int) bool { return !slices.Contains(lines, line) }))
		if len(lines) > 0 {
			excepted = append(excepted, b.evaluating(func(line int) bool { return slices.Contains(lines, line) }))
		}
	}
	return passing, excepted
}

// checkFailing runs blocks in a child process and wants every evaluation in
// them to fail, and every exception to be among them.
func (a acceptance) checkFailing(t *testing.T, run int, url string, blocks []block) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestAcceptance$", "-test.v")
	child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", childVariable, run, url))
	output, _ := child.CombinedOutput() // it fails, as it should
	failed := failures(string(output))
	for _, e := range exceptions() {
		for _, line := range e.lines {
			at := fmt.Sprintf("%s:%d", e.file, line)
			if !slices.Contains(failed, at) {
				t.Errorf("%s does not fail, or is not there; it is excepted because it needs start timestamps", at)
			}
		}
	}
	if t.Failed() {
		t.Logf("%d blocks in a process of their own:\n%s", len(blocks), output)
	}
}
