package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// An answerType is a form of the answer to a remote read.
type answerType = prompb.ReadRequest_ResponseType

// fetch sends a request and reads the whole answer into buf.
func fetch(client *http.Client, req *http.Request, buf *bytes.Buffer) error {
	buf.Reset()
	resp, err := do(client, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = buf.ReadFrom(resp.Body)
	return err
}

// readRequest makes a remote read.
func readRequest(ctx context.Context, base string, s selection, as answerType) (*http.Request, error) {
	data, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{s.proto()}, AcceptedResponseTypes: []answerType{as}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, data)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	return req, nil
}

// digestAnswer counts the samples in the answer to a remote read.
func digestAnswer(body []byte, s selection, as answerType) (digest, error) {
	if as == prompb.ReadRequest_SAMPLES {
		return digestSamples(body)
	}
	return digestChunks(body, s)
}

func digestSamples(body []byte) (d digest, err error) {
	data, err := snappy.Decode(nil, body)
	if err != nil {
		return d, err
	}
	var resp prompb.ReadResponse
	if err := proto.Unmarshal(data, &resp); err != nil {
		return d, err
	}
	for _, result := range resp.Results {
		for _, ts := range result.Timeseries {
			hash := wireHash(ts.Labels)
			for _, sample := range ts.Samples {
				d.add(hash, sample.Timestamp, sample.Value)
			}
		}
	}
	return d, nil
}

// digestChunks leaves out samples beyond the selection: a chunk comes whole, and
// the client cuts it.
func digestChunks(body []byte, s selection) (d digest, err error) {
	const limit = 50_000_000 // Prometheus' default
	frames := remote.NewChunkedReader(bytes.NewReader(body), limit, nil)
	for {
		var frame prompb.ChunkedReadResponse
		if err := frames.NextProto(&frame); errors.Is(err, io.EOF) {
			return d, nil
		} else if err != nil {
			return d, err
		}
		for _, series := range frame.ChunkedSeries {
			hash := wireHash(series.Labels)
			for _, c := range series.Chunks {
				if err := digestChunk(&d, hash, c, s); err != nil {
					return d, err
				}
			}
		}
	}
}

func digestChunk(d *digest, series uint64, c prompb.Chunk, s selection) error {
	chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
	if err != nil {
		return err
	}
	it := chunk.Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		if t, v := it.At(); t >= s.mint && t <= s.maxt {
			d.add(series, t, v)
		}
	}
	return it.Err()
}

// wireHash returns what labels.Labels.Hash does.
func wireHash(pairs []prompb.Label) uint64 {
	b := labels.NewScratchBuilder(len(pairs))
	for _, l := range pairs {
		b.Add(l.Name, l.Value)
	}
	return b.Labels().Hash()
}

// rangeRequest makes a PromQL range query. The adapter and VictoriaMetrics would answer
// a second one from a cache, but for the header and for nocache.
func rangeRequest(ctx context.Context, base string, q rangeQuery) (*http.Request, error) {
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
	params := url.Values{
		"query": {q.text}, "start": {seconds(q.start)}, "end": {seconds(q.end)},
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
