package history

import (
	"context"
	"fmt"
	"net/url"
	"time"

	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/promtable/promtable/series"
)

const (
	// readSpan is how long a unit of a remote read is, in milliseconds, aligned: 4 windows, 9 hours. A source holds the answer to one request in
	// memory, if it does not stream.
	readSpan = 4 * series.Window
	// readTimeout is how long a source may take for a unit.
	readTimeout = 10 * time.Minute
)

// RemoteRead is a server with remote read: Prometheus, Mimir, Cortex, or another adapter. Chunks are streamed if it can.
type RemoteRead struct {
	client remote.ReadClient
	sel    Selection
}

// NewRemoteRead returns the server whose remote read is at a URL, such as http://localhost:9090/api/v1/read.
func NewRemoteRead(s Server, sel Selection) (*RemoteRead, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	client, err := remote.NewReadClient("import", &remote.ClientConfig{
		URL: &configutil.URL{URL: u}, Timeout: model.Duration(readTimeout), Headers: s.Headers, ChunkedReadLimit: config.DefaultChunkedReadLimit,
		HTTPClientConfig: s.HTTP,
	})
	return &RemoteRead{client, sel}, err
}

// Parallel implements Source.
func (*RemoteRead) Parallel() bool { return true }

// Close implements Source.
func (r *RemoteRead) Close() error {
	if c, ok := r.client.(*remote.Client); ok {
		c.Client.CloseIdleConnections()
	}
	return nil
}

// Units implements Source.
func (r *RemoteRead) Units(_ context.Context, rolled int64) ([]Unit, []error, error) {
	return unitsOf(r.sel, grid{rolled, readSpan})
}

// Open implements Source.
func (r *RemoteRead) Open(ctx context.Context, u Unit) (*Reading, error) {
	ctx, cancel := context.WithCancel(ctx)
	var sets []storage.ChunkSeriesSet
	for _, ms := range r.sel.named() {
		q, err := remote.ToQuery(u.Start, u.Limit-1, ms, nil)
		var set storage.SeriesSet
		if err == nil {
			set, err = r.client.Read(ctx, q, true)
		}
		if err != nil {
			cancel()
			return nil, &Temporary{fmt.Errorf("remote read: %w", err)}
		}
		sets = append(sets, temporarySet{Joined(storage.NewSeriesSetToChunkSet(set))})
	}
	return &Reading{ChunkSeriesSet: mergeSets(sets, mergeSamples), Close: func() error { cancel(); return nil }}, nil
}
