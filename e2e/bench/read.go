package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// fetch sends a request and reads the whole answer into buf.
func fetch(client *http.Client, req *http.Request, buf *bytes.Buffer) error {
	buf.Reset()
	resp, err := harness.Do(client, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = buf.ReadFrom(resp.Body)
	return err
}

// readRequest makes a remote read. It does not say that it comes from Prometheus: chunks are in the encodings that every client reads.
func readRequest(ctx context.Context, base string, s selection, as prompb.ReadRequest_ResponseType) (*http.Request, error) {
	req, err := harness.NewRead(ctx, base+"/api/v1/read", as, s.Query)
	if err == nil {
		req.Header.Del("User-Agent")
	}
	return req, err
}

// digestAnswer counts the samples in the answer to a remote read.
func digestAnswer(body []byte, s selection, as prompb.ReadRequest_ResponseType) (d digest, err error) {
	results, err := harness.DecodeRead(as, bytes.NewReader(body), s.Query)
	if err != nil {
		return d, err
	}
	for _, series := range results[0] {
		hash := series.Labels.Hash()
		for _, p := range series.Points {
			d.add(hash, p.T, p.Bits)
		}
	}
	return d, nil
}

// rangeRequest makes a PromQL range query. The adapter and VictoriaMetrics would answer
// a second one from a cache, but for the header and for nocache.
func rangeRequest(ctx context.Context, base string, q rangeQuery) (*http.Request, error) {
	params := url.Values{
		"query": {q.text}, "start": {harness.FormatSeconds(q.start)}, "end": {harness.FormatSeconds(q.end)},
		"step": {strconv.FormatFloat(q.step.Seconds(), 'f', -1, 64)}, "nocache": {"1"},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/query_range?"+params.Encode(), nil)
	if err == nil {
		req.Header.Set("Cache-Control", "no-store")
	}
	return req, err
}

// countMatrix returns how many samples a matrix holds. Their values are those of
// the engine: VictoriaMetrics extrapolates rates in another way.
func countMatrix(body []byte) (digest, error) {
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Values []json.RawMessage }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return digest{}, err
	}
	if answer.Status != "success" {
		return digest{}, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	var d digest
	for _, r := range answer.Data.Result {
		d.Samples += len(r.Values)
	}
	return d, nil
}

// bytesRead returns how many bytes of cells an answer of the adapter with stats=all says were read.
func bytesRead(body []byte) (int64, error) {
	var answer struct {
		Data struct {
			Stats struct{ Storage struct{ Bytes int64 } }
		}
	}
	err := json.Unmarshal(body, &answer)
	return answer.Data.Stats.Storage.Bytes, err
}
