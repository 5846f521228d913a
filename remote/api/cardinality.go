package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/promtable/promtable/remote/engine"
)

const (
	// cardinalityAge is how long an answer about the whole index is good for.
	cardinalityAge = time.Minute
	// defaultTop and maxTop bound the parameter limit, as in Prometheus.
	defaultTop = 10
	maxTop     = 10_000
)

// cardinalityCache keeps the last answer: one costs a pass over the postings of
// an index period, and the page requests it repeatedly.
type cardinalityCache struct {
	// reading holds a token while a request reads, so that others wait for the
	// answer instead of reading too.
	reading chan struct{}
	once    sync.Once

	mu    sync.Mutex
	last  *engine.Cardinality
	limit int
	at    time.Time
}

// tsdbStatus is the answer, in the form of Prometheus, which has more to say of
// its own memory.
type tsdbStatus struct {
	HeadStats                   headStats      `json:"headStats"`
	SeriesCountByMetricName     []engine.Count `json:"seriesCountByMetricName"`
	LabelValueCountByLabelName  []engine.Count `json:"labelValueCountByLabelName"`
	MemoryInBytesByLabelName    []engine.Count `json:"memoryInBytesByLabelName"`
	SeriesCountByLabelValuePair []engine.Count `json:"seriesCountByLabelValuePair"`
}

type headStats struct {
	NumSeries     int   `json:"numSeries"`
	NumLabelPairs int   `json:"numLabelPairs"`
	ChunkCount    int   `json:"chunkCount"`
	MinTime       int64 `json:"minTime"`
	MaxTime       int64 `json:"maxTime"`
}

// serveCardinality answers /api/v1/status/tsdb: the series of the running index
// period, which metrics, labels and pairs they are of. The memory is the bytes
// of the values of a label.
func (a *API) serveCardinality(w http.ResponseWriter, r *http.Request) {
	limit, err := limitParameter(r, "limit", defaultTop)
	if err == nil && (limit < 1 || limit > maxTop) {
		err = fmt.Errorf("it must be from 1 to %d", maxTop)
	}
	if err != nil {
		badParameter(w, "limit", err)
		return
	}
	c, err := a.cardinalityOf(r.Context(), limit)
	if err != nil {
		respond(w, nil, mark(err))
		return
	}
	respond(w, tsdbStatus{
		HeadStats:                   headStats{NumSeries: c.Series, NumLabelPairs: c.Pairs, MinTime: c.Mint, MaxTime: c.Maxt},
		SeriesCountByMetricName:     top(c.Metrics, limit),
		LabelValueCountByLabelName:  top(c.Labels, limit),
		MemoryInBytesByLabelName:    top(c.LabelBytes, limit),
		SeriesCountByLabelValuePair: top(c.SeriesByPair, limit),
	}, nil)
}

func top(counts []engine.Count, limit int) []engine.Count {
	if counts == nil {
		return []engine.Count{} // not null
	}
	return counts[:min(len(counts), limit)]
}

// cardinalityOf returns the cached answer, if it is not too old, or reads the index.
func (a *API) cardinalityOf(ctx context.Context, limit int) (*engine.Cardinality, error) {
	c := &a.cardinality
	c.once.Do(func() { c.reading = make(chan struct{}, 1) })
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the index: %w", ctx.Err())
	}
	now := a.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != nil && c.limit >= limit && now.Sub(c.at) < cardinalityAge {
		return c.last, nil
	}
	found, err := a.cfg.Engine.Cardinality(ctx, max(limit, defaultTop))
	if err != nil {
		return nil, errors.Join(err)
	}
	c.last, c.limit, c.at = found, max(limit, defaultTop), now
	return found, nil
}
