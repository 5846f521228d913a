package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/engine/backfill"
	"github.com/promtable/promtable/series/rollup"
)

const (
	// sendBytes is about how many bytes a request has.
	sendBytes = 4 << 20
	// requestTimeout is longer than handleTimeout.
	requestTimeout = 3 * time.Minute
	// SendAttempts is how often a request is sent that the adapter does not answer, or answers to try again. The pause doubles up to
	// maxSendPause.
	SendAttempts = 12
	maxSendPause = 30 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 16 << 20
)

// Client is a running adapter as a Target. A request that fails for a time is sent again.
type Client struct {
	base   string
	client *http.Client
	// pause replaces the pause between two attempts in tests.
	pause func(ctx context.Context, d time.Duration) error
}

// NewClient returns a client of the adapter at a URL such as http://localhost:9201, of which the import uses Path.
func NewClient(s Server) (*Client, error) {
	client, err := s.Client(requestTimeout)
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		// To follow most of them turns a POST into a GET, whose answer looks as if all were stored.
		return http.ErrUseLastResponse
	}
	return &Client{base: strings.TrimSuffix(s.URL, "/"), client: client, pause: bucketstore.Sleep}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

// Done implements Target.
func (c *Client) Done(ctx context.Context, id string) ([]string, error) {
	var found units
	err := c.do(ctx, http.MethodGet, url.Values{"id": {id}}, nil, &found)
	return found.Units, err
}

// Rolled implements Target.
func (c *Client) Rolled(ctx context.Context) (int64, error) {
	var found units
	err := c.do(ctx, http.MethodGet, nil, nil, &found)
	return found.Rolled, err
}

// SetDone implements Target.
func (c *Client) SetDone(ctx context.Context, id string, done ...meta.Part) error {
	body, err := json.Marshal(units{Parts: done})
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPut, url.Values{"id": {id}}, body, new(units))
}

// NewWriter implements Target.
func (c *Client) NewWriter(_ context.Context, u Unit) (Writer, error) {
	w := &clientWriter{client: c, rolled: u.Rolled, params: url.Values{"start": {strconv.FormatInt(u.Start, 10)}, "limit": {strconv.FormatInt(u.Limit, 10)}, "rolled": {strconv.FormatBool(u.Rolled)}}}
	w.frames = remote.NewChunkedWriter(&w.body, noFlusher{})
	return w, nil
}

// Shown returns the times before which the adapter shows no samples, and no rollups of a resolution, in milliseconds. It is math.MaxInt64 of a resolution that
// is not kept. The adapter is asked up to so many times.
func (c *Client) Shown(ctx context.Context, attempts int) (shown [rollup.NumResolutions]int64, err error) {
	var answer struct {
		Data struct {
			Resolutions []struct {
				Name string
				From int64
			}
		}
	}
	if err := c.doAt(ctx, attempts, http.MethodGet, c.base+"/api/v1/status/store", nil, nil, &answer); err != nil {
		return shown, err
	}
	for r := range shown {
		shown[r] = math.MaxInt64
		for _, of := range answer.Data.Resolutions {
			if of.Name == rollup.Resolution(r).String() {
				shown[r] = of.From
			}
		}
	}
	if shown[rollup.Raw] == math.MaxInt64 {
		return shown, fmt.Errorf("%s does not say from when on it has samples: it is no adapter of this version", c.base)
	}
	return shown, nil
}

// do sends a request about an import until it is answered, and decodes the answer.
func (c *Client) do(ctx context.Context, method string, params url.Values, body []byte, result any) error {
	return c.doAt(ctx, SendAttempts, method, c.base+Path, params, body, result)
}

// doAt sends a request up to so many times.
func (c *Client) doAt(ctx context.Context, attempts int, method, at string, params url.Values, body []byte, result any) error {
	wait := firstPause
	for n := 1; ; n++ {
		again, err := c.try(ctx, method, at, params, body, result)
		if err == nil || !again || n == attempts || ctx.Err() != nil {
			return err
		}
		if err := c.pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxSendPause)
	}
}

// try sends a request once, and says whether to send it again.
func (c *Client) try(ctx context.Context, method, at string, params url.Values, body []byte, result any) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at+"?"+params.Encode(), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return true, err
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return false, json.Unmarshal(text, result)
	case resp.StatusCode == http.StatusNotFound:
		return false, fmt.Errorf("%s is no adapter with --web.enable-admin-api", req.URL.Redacted())
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return false, fmt.Errorf("%s %s: %s to %q: give the URL behind it", method, req.URL.Redacted(), resp.Status, resp.Header.Get("Location"))
	}
	return resp.StatusCode >= 500, fmt.Errorf("%s %s: %s: %s", method, req.URL.Redacted(), resp.Status, bytes.TrimSpace(text))
}

// A clientWriter sends the series of a unit.
type clientWriter struct {
	client *Client
	params url.Values
	rolled bool
	body   bytes.Buffer
	frames *remote.ChunkedWriter
	counts backfill.Counts
	it     chunks.Iterator
}

// noFlusher is for upstream's writer, which flushes after each frame.
type noFlusher struct{}

func (noFlusher) Flush() {}

// Write implements Writer.
func (w *clientWriter) Write(ctx context.Context, s storage.ChunkSeries) error {
	series := prompb.ChunkedSeries{Labels: prompb.FromLabels(s.Labels(), nil)}
	w.it = s.Iterator(w.it)
	for w.it.Next() {
		c := w.it.At()
		series.Chunks = append(series.Chunks, prompb.Chunk{MinTimeMs: c.MinTime, MaxTimeMs: c.MaxTime, Type: prompb.Chunk_Encoding(c.Chunk.Encoding()), Data: c.Chunk.Bytes()})
	}
	damage := w.it.Err()
	if damage != nil && temporaryOf(damage) == nil {
		damage = &DamageError{damage}
	}
	if w.rolled && damage != nil {
		return damage // see storeWriter.Write
	}
	if len(series.Chunks) > 0 {
		frame, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{&series}}).Marshal()
		if err == nil {
			_, err = w.frames.Write(frame)
		}
		if err != nil {
			return err
		}
	}
	if w.body.Len() < sendBytes {
		return damage
	}
	err := w.send(ctx)
	if err != nil && !errors.As(err, new(*RefusedError)) {
		return err
	}
	return errors.Join(damage, err)
}

func (w *clientWriter) Flush(ctx context.Context) error {
	if w.body.Len() == 0 {
		return nil
	}
	return w.send(ctx)
}

func (w *clientWriter) Counts() backfill.Counts { return w.counts }

// send sends what is there. A RefusedError is about some of its series; the others are stored.
func (w *clientWriter) send(ctx context.Context) error {
	var a answer
	if err := w.client.do(ctx, http.MethodPost, w.params, w.body.Bytes(), &a); err != nil {
		return err
	}
	w.body.Reset()
	w.counts.Add(a.Counts)
	if len(a.Refused) > 0 {
		return &RefusedError{a.Refused}
	}
	return nil
}
