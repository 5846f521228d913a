package fleet

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/meta"
)

const (
	// DialTimeout bounds a connection, and stallTimeout the time until the first and the next part of an answer: a member that is
	// suspended takes requests and does not answer.
	DialTimeout  = 2 * time.Second
	stallTimeout = 5 * time.Second
	// downTime is how long a member that could not be asked is not asked again.
	downTime = time.Second
	// maxAnswer bounds the answer of a member, in bytes.
	maxAnswer = 1 << 30
)

var (
	errStalled = fmt.Errorf("it has not answered for %s", stallTimeout)
	errOther   = errors.New("another process answers there, or it is starting")
)

// NewClient returns a client that asks members over transport, which may be nil.
func NewClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: DialTimeout}).DialContext,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, DisableCompression: true,
		}
	}
	return &http.Client{Transport: transport}
}

// askOpen asks a member for what it has in memory.
func (f *Fleet) askOpen(ctx context.Context, l meta.Log, path string, req openRequest) (rows []bucketstore.Row, err error) {
	req.Target = f.target(l)
	err = f.ask(ctx, l, path, req, func(d *gob.Decoder) (bool, error) {
		var part openAnswer
		err := d.Decode(&part)
		rows = append(rows, part.Rows...)
		return part.End, err
	})
	return rows, err
}

// askIndexed asks a member what it has indexed, and written late, since it was asked before.
func (f *Fleet) askIndexed(ctx context.Context, l meta.Log, before contact) (all indexedAnswer, err error) {
	req := indexedRequest{Target: f.target(l), Since: before.next, SinceLate: before.nextLate, IsKnown: before.isKnown}
	err = f.ask(ctx, l, indexedPath, req, func(d *gob.Decoder) (bool, error) {
		var part indexedAnswer
		err := d.Decode(&part)
		all.Series, all.Late = append(all.Series, part.Series...), append(all.Late, part.Late...)
		all.Lost, all.Next, all.NextLate = all.Lost || part.Lost, part.Next, part.NextLate
		return part.End, err
	})
	return all, err
}

func (f *Fleet) target(l meta.Log) target {
	return target{Store: f.cfg.Meta.Identity(), Log: l.ID, Token: l.Token}
}

// ask sends a request to a member, and calls part until it says that the answer is whole.
func (f *Fleet) ask(ctx context.Context, l meta.Log, path string, req any, part func(*gob.Decoder) (isEnd bool, err error)) (err error) {
	if err := f.isDown(l.Token); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		f.metrics.seconds.Observe(time.Since(began).Seconds())
		if err == nil {
			f.metrics.asked.WithLabelValues("ok").Inc()
			return
		}
		f.metrics.asked.WithLabelValues("failed").Inc()
		if ctx.Err() == nil { // else the client has gone
			f.noteDown(l.Token, err)
		}
	}()
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(req); err != nil {
		return err
	}
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	defer func() {
		if err != nil && errors.Is(context.Cause(asking), errStalled) {
			err = errStalled
		}
	}()
	r, err := http.NewRequestWithContext(asking, http.MethodPost, l.Address+path, &body)
	if err != nil {
		return err
	}
	resp, err := f.cfg.Client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusConflict:
		return errOther
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("it answers %s: %q", resp.Status, bytes.TrimSpace(text))
	}
	d := gob.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	for {
		isEnd, err := part(d)
		if err != nil {
			return fmt.Errorf("its answer ends early: %w", err)
		}
		if isEnd {
			_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1)) // so that the connection is used again
			return err
		}
		stalled.Reset(stallTimeout)
	}
}

// isDown returns why a member could not be asked a moment ago.
func (f *Fleet) isDown(token string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.down[token]; ok && f.age(last.at) < downTime {
		return last.err
	}
	delete(f.down, token)
	return nil
}

func (f *Fleet) noteDown(token string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for token, last := range f.down {
		if f.age(last.at) >= downTime {
			delete(f.down, token)
		}
	}
	f.down[token] = failure{f.cfg.Now(), err}
}
