package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/e2e/harness"
)

// A bench is the load that all servers get.
type bench struct {
	workload    workload
	selections  []selection
	expressions []expression
	connections int
	readTime    time.Duration // at least, for each query
	dir         string        // for the servers' data
	progress    func(format string, args ...any)
}

// run starts a fresh server, sends it all requests of a spool, reads if it is
// told to, stops it, and notes figures of all that.
func (b *bench) run(ctx context.Context, c contender, p harness.Protocol, s *spool, reads bool, out *results) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s, remote write %s: %w", c.title, p.Name, err)
		}
	}()
	b.progress("%s: remote write %s", c.title, p.Name)
	dir := filepath.Join(b.dir, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := c.start(ctx, dir)
	if err != nil {
		return err
	}
	defer server.close()
	note := out.noter(c.name, "remote write "+p.Name)
	if err := b.write(ctx, server, p, s, note); err != nil {
		return err
	}
	if reads {
		if err := b.read(ctx, c, server, out); err != nil {
			return err
		}
	}
	return b.finish(ctx, server, note)
}

// write sends the requests and waits until the server has dealt with them.
func (b *bench) write(ctx context.Context, s *server, p harness.Protocol, requests *spool, note noter) error {
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	emulator, err := s.emulatorCPU()
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := send(ctx, s.url+"/api/v1/write", p, requests, b.connections)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.Tail())
	}
	wall := time.Since(began)
	if err := s.settle(ctx); err != nil {
		return err
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	samples := float64(b.workload.total())
	note("CPU s per M samples", (after.cpu-before.cpu).Seconds()/samples*1e6)
	note("peak RSS before the first request, MB", float64(before.peak)/1e6)
	note("peak RSS, MB", float64(after.peak)/1e6)
	note("pages of files in it at the end, MB", float64(after.files)/1e6)
	note("written to disk, B per sample", float64(after.written-before.written)/samples)
	note("request p50, ms", milliseconds(quantile(took, 0.5)))
	note("request p99, ms", milliseconds(quantile(took, 0.99)))
	note("samples per second, thousands", samples/wall.Seconds()/1e3)
	return s.noteBigtable(ctx, samples, emulator, note)
}

// settle makes written samples visible, and waits until the server has finished its
// background work.
func (s *server) settle(ctx context.Context) error {
	const limit = time.Minute
	if s.flush != "" {
		if _, err := s.call(ctx, http.MethodGet, s.flush); err != nil {
			return err
		}
	}
	return settle(ctx, s.PID(), limit)
}

// call sends a request without a body, which no cache may answer, and returns the body of the answer.
func (s *server) call(ctx context.Context, method, path string) ([]byte, error) {
	client := newClient(1)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Cache-Control", "no-store")
	var body bytes.Buffer
	err = fetch(client, req, &body)
	return body.Bytes(), err
}

// finish stops the server, and then measures its disk.
func (b *bench) finish(ctx context.Context, s *server, note noter) error {
	samples := float64(b.workload.total())
	if s.snapshot != "" {
		if _, err := s.call(ctx, http.MethodPost, s.snapshot); err != nil {
			return err
		}
	}
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	if err := s.stop(); err != nil {
		return err
	}
	note("CPU s per M samples of the stop", (s.total().cpu-before.cpu).Seconds()/samples*1e6)
	note("written to disk by the stop, B per sample", float64(s.total().written-before.written)/samples)
	if s.data == "" {
		return nil
	}
	disk, err := diskUsage(s.data, s.skip)
	if err != nil {
		return err
	}
	note("on disk (du), B per sample", float64(disk.occupied)/samples)
	note("length of the files, B per sample", float64(disk.length)/samples)
	if s.snapshot == "" {
		return nil
	}
	blocks, err := diskUsage(s.skip, "")
	note("on disk (du) as blocks without a log, B per sample", float64(blocks.occupied)/samples)
	return err
}

// read asks all queries that the server can answer.
func (b *bench) read(ctx context.Context, c contender, s *server, out *results) error {
	var list []question
	for _, as := range []prompb.ReadRequest_ResponseType{harness.Streamed, harness.Samples} {
		for _, name := range names(b.selections) {
			if c.remoteRead {
				list = append(list, b.remoteRead(ctx, s, name, as))
			}
		}
	}
	for _, e := range b.expressions {
		d := b.workload.drawer()
		list = append(list, question{
			section: "PromQL", name: e.name, whole: true,
			request: func() (*http.Request, error) { return rangeRequest(ctx, s.url, e.draw(d)) },
			digest:  countMatrix, draws: e.draws(), atOnce: e.atOnce, memory: e.workload.Metric != "",
		})
	}
	for _, q := range list {
		err := b.ask(ctx, c, s, q, out)
		if err != nil && q.atOnce > 1 && c.name != adapterName { // more than it can do: its column stays empty
			b.progress("%s, %s: %v", c.title, q.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s, %s: %w", q.section, q.name, err)
		}
	}
	return nil
}

// names returns the names of selections, each once.
func names(all []selection) (names []string) {
	for _, sel := range all {
		if !slices.Contains(names, sel.name) {
			names = append(names, sel.name)
		}
	}
	return names
}

// remoteRead asks for the selections with a name, in turn.
func (b *bench) remoteRead(ctx context.Context, s *server, name string, as prompb.ReadRequest_ResponseType) question {
	var turns []selection
	for _, sel := range b.selections {
		if sel.name == name {
			turns = append(turns, sel)
		}
	}
	var at selection
	next := 0
	return question{
		section: "remote read, " + as.String(), name: name, draws: len(turns), atOnce: 1,
		request: func() (*http.Request, error) {
			at = turns[next%len(turns)]
			next++
			return readRequest(ctx, s.url, at, as)
		},
		digest: func(body []byte) (digest, error) { return digestAnswer(body, at, as) },
	}
}

// A question is a query, drawn anew each time, and how its answer is counted.
type question struct {
	section, name string
	// draws is how many answers are checked.
	draws int
	// whole is for one whose answer says little about its cost, which then is by
	// query instead of by sample.
	whole bool
	// atOnce is how many are asked at once, and memory says that the memory they take is noted.
	atOnce  int
	memory  bool
	request func() (*http.Request, error)
	digest  func(body []byte) (digest, error)
}

// ask records the answer to a query, and its cost.
func (b *bench) ask(ctx context.Context, c contender, s *server, q question, out *results) error {
	client := newClient(q.atOnce)
	defer client.CloseIdleConnections()
	var buf bytes.Buffer
	var d digest
	for range q.draws {
		if err := q.send(client, &buf); err != nil {
			return err
		}
		some, err := q.digest(buf.Bytes())
		if err != nil {
			return err
		}
		d = d.and(some)
	}
	out.answer(c.name, q.section, q.name, d)
	if q.memory {
		if err := settle(ctx, s.PID(), time.Minute); err != nil {
			return err
		}
	}
	idle, err := resetPeak(s.PID())
	if err != nil {
		return err
	}
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	took, err := q.repeat(client, b.readTime)
	if err != nil {
		return err
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	note, cpu := out.noter(c.name, q.section), (after.cpu-before.cpu)/time.Duration(len(took))
	if q.memory {
		note(q.name+": peak RSS over that before, MB", float64(after.peak-idle)/1e6)
	}
	if q.whole {
		note(q.name+": CPU ms per query", milliseconds(cpu))
	} else {
		note(q.name+": CPU s per M samples", cpu.Seconds()/float64(max(d.Samples, 1))*float64(q.draws)*1e6)
	}
	note(q.name+": p50, ms", milliseconds(quantile(took, 0.5)))
	note(q.name+": p99, ms", milliseconds(quantile(took, 0.99)))
	return nil
}

// send asks once.
func (q question) send(client *http.Client, buf *bytes.Buffer) error {
	req, err := q.request()
	if err != nil {
		return err
	}
	return fetch(client, req, buf)
}

// repeat asks for as long as it is told to, and at least five times, so many at once. It
// returns how long each took, ascending.
func (q question) repeat(client *http.Client, atLeast time.Duration) ([]time.Duration, error) {
	bufs := make([]bytes.Buffer, q.atOnce)
	var took []time.Duration
	for began := time.Now(); len(took) < 5 || time.Since(began) < atLeast; {
		requests := make([]*http.Request, q.atOnce)
		for i := range requests {
			var err error
			if requests[i], err = q.request(); err != nil {
				return nil, err
			}
		}
		times := make([]time.Duration, q.atOnce)
		var g errgroup.Group
		for i, req := range requests {
			g.Go(func() error {
				sent := time.Now()
				err := fetch(client, req, &bufs[i])
				times[i] = time.Since(sent)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return nil, err
		}
		took = append(took, times...)
	}
	slices.Sort(took)
	return took, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
