package main

import (
	"bufio"
	"context"
	"fmt"
	"os"

	"github.com/promtable/promtable/e2e/harness"
)

// A spool is a file of encoded requests, in the order in which they are to be
// sent. It is complete before anything is sent, and is safe for concurrent
// reads.
type spool struct {
	file *os.File
	ends []int64 // of requests, in bytes
	// Each scrape has this many requests. Requests at the same position in their scrape
	// hold the same series.
	perScrape int
	// tenants is of how many tenants the requests of a scrape are, in turn. 0 is of none.
	tenants int
}

// tenant returns that of request i, or nothing.
func (s *spool) tenant(i int) string {
	if s.tenants == 0 {
		return ""
	}
	return tenantName(i % s.perScrape % s.tenants)
}

// newSpool encodes a workload into a file at path, so many samples a request.
func newSpool(ctx context.Context, path string, p harness.Protocol, w workload, perRequest int) (s *spool, err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	s = &spool{file: file}
	g := newGenerator(w)
	requests := s.requests(g, perRequest)
	out := bufio.NewWriterSize(file, 1<<20)
	var end int64
	for g.scrape() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for k, series := range requests {
			for i, at := 0, k*perRequest; i < len(series); i, at = i+1, at+1 {
				series[i].Points[0] = harness.PointAt(g.T[at], g.V[at])
			}
			n, err := out.Write(p.Encode(series))
			if err != nil {
				return nil, fmt.Errorf("write encoded requests: %w", err)
			}
			end += int64(n)
			s.ends = append(s.ends, end)
		}
	}
	if err := out.Flush(); err != nil {
		return nil, fmt.Errorf("write encoded requests: %w", err)
	}
	// Unsynced bytes would slow the server's own writes.
	return s, file.Sync()
}

// requests returns the series of each request of a scrape.
func (s *spool) requests(g *generator, perRequest int) (list [][]harness.SentSeries) {
	for from := 0; from < g.Series; from += perRequest {
		list = append(list, g.sent(from, min(from+perRequest, g.Series)))
	}
	s.perScrape = len(list)
	return list
}

// request returns request i, in buf if that is large enough.
func (s *spool) request(i int, buf []byte) ([]byte, error) {
	var from int64
	if i > 0 {
		from = s.ends[i-1]
	}
	n := int(s.ends[i] - from)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	_, err := s.file.ReadAt(buf[:n], from)
	return buf[:n], err
}

// Close removes the file.
func (s *spool) Close() error {
	s.file.Close()
	return os.Remove(s.file.Name())
}
