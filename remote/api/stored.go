package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/promtable/promtable/remote/engine/current"
)

// maxStoreSeries is how many series /api/v1/status/store counts if they are not counted in memory.
const maxStoreSeries = 10_000

// maxNewest is of how many series /api/v1/status/store reads the current sample: on Bigtable a tenth of a node-second.
const maxNewest = 1000

// newestTimeout is how long /api/v1/status/store looks for them.
const newestTimeout = 2 * time.Second

// A Resolution is one in which samples are kept.
type Resolution struct {
	// Name is raw, 5m or 1h.
	Name string
	// Age is how long it is kept, 0 for ever, and From the time in milliseconds from which on it is there.
	Age  time.Duration
	From int64
}

// storeStatus is the answer of /api/v1/status/store.
type storeStatus struct {
	// Series is how many series the running index period has, which is that from MinTime to MaxTime. If
	// SeriesExact is false there are more.
	Series      int   `json:"series"`
	SeriesExact bool  `json:"seriesExact"`
	MinTime     int64 `json:"minTime"`
	MaxTime     int64 `json:"maxTime"`
	// Oldest and Newest are the first and the last index period with series, without what is cut and what is to
	// come. They are missing in an empty store.
	Oldest *period `json:"oldest,omitempty"`
	Newest *period `json:"newest,omitempty"`
	// NewestSample is the time of the newest sample of which the store knows that it is current, not counting series that have ended. If
	// NewestExact is false only some series were looked at. It is missing if there is none, or if the store is too busy to look.
	NewestSample int64        `json:"newestSample,omitempty"`
	NewestExact  bool         `json:"newestSampleExact,omitempty"`
	Resolutions  []resolution `json:"resolutions"`
}

type period struct {
	MinTime int64 `json:"minTime"`
	MaxTime int64 `json:"maxTime"`
}

type resolution struct {
	Name          string  `json:"name"`
	MaxAgeSeconds float64 `json:"maxAgeSeconds"`
	From          int64   `json:"from"`
}

// serveStore answers /api/v1/status/store: what is stored, as far as that is cheap to know.
func (a *API) serveStore(w http.ResponseWriter, r *http.Request) {
	found, err := a.cfg.Engine.Extent(r.Context(), maxStoreSeries)
	if err != nil {
		respond(w, nil, mark(r.Context(), err))
		return
	}
	now := a.cfg.Now()
	answer := storeStatus{Series: found.Series, SeriesExact: found.Exact, MinTime: found.Mint, MaxTime: found.Maxt, Resolutions: []resolution{}}
	cut := int64(0)
	if a.cfg.Resolutions != nil {
		for i, of := range a.cfg.Resolutions(now) {
			answer.Resolutions = append(answer.Resolutions, resolution{of.Name, of.Age.Seconds(), of.From})
			if i == 0 || of.From < cut {
				cut = of.From
			}
		}
	}
	if found.First >= 0 {
		within := func(start int64) *period {
			return &period{max(start, cut), min(start+found.Maxt-found.Mint, now.UnixMilli())}
		}
		answer.Oldest, answer.Newest = within(found.First), within(found.Last)
	}
	ctx, cancel := context.WithTimeout(r.Context(), newestTimeout)
	defer cancel()
	if t, exact, err := a.newest(ctx); err == nil { // or else all but this is known
		answer.NewestSample, answer.NewestExact = t, exact
	}
	respond(w, answer, nil)
}

// newest returns the greatest time of the current samples of up to maxNewest series, and whether these are all.
func (a *API) newest(ctx context.Context) (t int64, exact bool, err error) {
	if err := a.passes.Acquire(ctx, 1); err != nil {
		return 0, false, fmt.Errorf("wait for other passes over CURRENT: %w", err)
	}
	defer a.passes.Release(ctx, 1)
	found, err := a.cfg.Engine.Inventory(ctx, nil, maxNewest, func(s current.Sample) error {
		t = max(t, s.T)
		return nil
	})
	return t, t > 0 && !found.Truncated, mark(ctx, err)
}
