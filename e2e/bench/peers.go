package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/e2e/harness"
)

// startPeer starts a peer that has the samples of the history, which the adapter serves, and is done with taking them.
func (h *history) startPeer(ctx context.Context, name string, adapter *server) (s *server, title string, err error) {
	progress("filling %s", name)
	dir := filepath.Join(h.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", err
	}
	start := h.startVictoria
	if name == prometheusName {
		start = h.startPrometheus
	}
	began := time.Now()
	c, s, err := start(ctx, dir, adapter)
	if err != nil {
		return nil, "", err
	}
	h.add(fmt.Sprintf("%s %s: filling it, s", c.title, c.version), digits(time.Since(began).Seconds()))
	if err = s.settle(ctx); err == nil {
		_, err = h.disk(s.data, s.skip, c.title)
	}
	if err != nil {
		s.close()
	}
	return s, c.title, err
}

// startPrometheus starts Prometheus on blocks that the adapter exports. They are as long as
// those into which Prometheus compacts a month, so that there is nothing left to compact.
func (h *history) startPrometheus(ctx context.Context, dir string, adapter *server) (c contender, s *server, err error) {
	p, err := buildPrometheus()
	if err != nil {
		return c, nil, err
	}
	c = newPrometheus(p, "--query.timeout=1h")
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return c, nil, err
	}
	_, err = output(ctx, h.program.path, "export", "--url="+adapter.url+"/api/v1/read",
		"--start="+harness.FormatSeconds(h.workload.begin()-h.workload.Interval.Milliseconds()), "--end="+harness.FormatSeconds(h.workload.End),
		"blocks", "--block-duration=486h", data)
	if err != nil {
		return c, nil, err
	}
	s, err = c.start(ctx, dir)
	return c, s, err
}

// startVictoria sends VictoriaMetrics all samples, and starts it again, so that they are files.
func (h *history) startVictoria(ctx context.Context, dir string, _ *server) (c contender, s *server, err error) {
	p, err := buildVictoria()
	if err != nil {
		return c, nil, err
	}
	c = newVictoria(p, "-search.maxQueryDuration=1h")
	filling, err := c.start(ctx, dir)
	if err != nil {
		return c, nil, err
	}
	defer filling.close()
	if err := sendAll(ctx, filling.url+"/api/v1/write", h.workload); err != nil {
		return c, nil, err
	}
	if err := filling.stop(); err != nil {
		return c, nil, err
	}
	s, err = c.start(ctx, dir)
	return c, s, err
}

// sendAll sends a workload by remote write 1.0, in large requests, of which later ones may overtake earlier ones.
func sendAll(ctx context.Context, url string, w workload) error {
	const connections, perRequest = 2, 50_000
	client, protocol := newClient(connections), harness.RemoteWrite1()
	defer client.CloseIdleConnections()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(connections)
	for g := newGenerator(w); ctx.Err() == nil && g.scrape(); {
		series := g.sent(0, w.Series)
		for n := 2 * w.Series; n <= perRequest && g.scrape(); n += w.Series {
			for i := range series {
				series[i].Points = append(series[i].Points, harness.PointAt(g.T[i], g.V[i]))
			}
		}
		group.Go(func() error { return write(ctx, client, url, protocol, "", protocol.Encode(series)) })
	}
	return group.Wait()
}
