package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/promtable/promtable/e2e/harness"
)

// newClient returns a client that keeps up to connections open and does not ask
// for compressed answers.
func newClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true},
		Timeout:   5 * time.Minute,
	}
}

// send sends all requests of a spool, in order, over so many connections, and
// returns how long each took, ascending. The samples of a series arrive in
// order: a request waits for the answer to the one that has the same series a
// scrape earlier. An answer other than 2xx ends it.
func send(ctx context.Context, url string, p harness.Protocol, requests *spool, connections int) ([]time.Duration, error) {
	s := &sender{
		client: newClient(connections), url: url, protocol: p, requests: requests,
		took: make([]time.Duration, len(requests.ends)), answered: make([]chan struct{}, len(requests.ends)),
	}
	defer s.client.CloseIdleConnections()
	for i := range s.answered {
		s.answered[i] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	for range connections {
		group.Go(func() error { return s.work(ctx) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(s.took)
	return s.took, nil
}

// A sender is what the connections share.
type sender struct {
	client   *http.Client
	url      string
	protocol harness.Protocol
	requests *spool
	next     atomic.Int64
	took     []time.Duration
	answered []chan struct{} // closed when the request is answered
}

// work sends requests until there are no more. It takes them in order, so that a wait is
// always for a request in flight.
func (s *sender) work(ctx context.Context) error {
	var buf []byte
	for {
		i := int(s.next.Add(1)) - 1
		if i >= len(s.took) {
			return nil
		}
		if before := i - s.requests.perScrape; before >= 0 {
			select {
			case <-s.answered[before]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var err error
		if buf, err = s.requests.request(i, buf); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		began := time.Now()
		if err := write(ctx, s.client, s.url, s.protocol, s.requests.tenant(i), buf); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		s.took[i] = time.Since(began)
		close(s.answered[i])
	}
}

// write sends one remote write, of a tenant unless that is empty.
func write(ctx context.Context, client *http.Client, url string, p harness.Protocol, tenant string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	for name, value := range p.Header() {
		req.Header.Set(name, value)
	}
	if tenant != "" {
		req.Header.Set(tenantHeader, tenant)
	}
	resp, err := harness.Do(client, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// quantile returns the smallest element that at least a share q of all do not
// exceed. sorted is ascending and not empty.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(float64(len(sorted))*q - 1e-9)) // 0.07 of 100 is a bit more than 7 in floats
	return sorted[min(max(i, 1), len(sorted))-1]
}
