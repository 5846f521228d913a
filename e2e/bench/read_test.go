package main

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/e2e/harness"
)

func contains(err error, part string) bool { return err != nil && strings.Contains(err.Error(), part) }

func wireLabels(ls labels.Labels) (list []prompb.Label) {
	ls.Range(func(l labels.Label) { list = append(list, prompb.Label{Name: l.Name, Value: l.Value}) })
	return list
}

// answerOf encodes everything a workload has of the series of a selection, in
// chunks whole, in samples cut to its range and changed by change.
func answerOf(t *testing.T, w workload, s selection, as prompb.ReadRequest_ResponseType, change func(*float64)) []byte {
	t.Helper()
	var chunked bytes.Buffer
	result := &prompb.QueryResult{}
	frames := remote.NewChunkedWriter(&chunked, httptest.NewRecorder())
	g, all := newGenerator(w), scrapeAll(w)
	for i := range w.Series {
		if !s.matches(g.labels(i)) {
			continue
		}
		chunk := chunkenc.NewXORChunk()
		app, err := chunk.Appender()
		if err != nil {
			t.Fatal(err)
		}
		ts := &prompb.TimeSeries{Labels: wireLabels(g.labels(i))}
		for _, scrape := range all {
			at, v := scrape.t[i], scrape.v[i]
			change(&v)
			app.Append(0, at, v)
			if at >= s.Mint && at <= s.Maxt {
				ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: at, Value: v})
			}
		}
		result.Timeseries = append(result.Timeseries, ts)
		data, err := proto.Marshal(&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{
			Labels: ts.Labels, Chunks: []prompb.Chunk{{MinTimeMs: all[0].t[i], MaxTimeMs: all[len(all)-1].t[i], Type: prompb.Chunk_XOR, Data: chunk.Bytes()}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := frames.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if as == harness.Streamed {
		return chunked.Bytes()
	}
	data, err := proto.Marshal(&prompb.ReadResponse{Results: []*prompb.QueryResult{result}})
	if err != nil {
		t.Fatal(err)
	}
	return snappy.Encode(nil, data)
}

// TestDigestAnswer wants both forms of an answer to have the digest that the
// workload says, and a single wrong value to have another.
func TestDigestAnswer(t *testing.T) {
	w := smallWorkload()
	all := selections(w)
	want := expected(w, all)
	for i, s := range all {
		for _, as := range harness.AnswerTypes() {
			t.Run(s.name+", "+as.String(), func(t *testing.T) {
				got, err := digestAnswer(answerOf(t, w, s, as, func(*float64) {}), s, as)
				if err != nil || got != want[i] {
					t.Errorf("got %v, want %v: %v", got, want[i], err)
				}
				got, err = digestAnswer(answerOf(t, w, s, as, func(v *float64) { *v++ }), s, as)
				if err != nil || got.Samples != want[i].Samples || got.Sum == want[i].Sum {
					t.Errorf("with other values got %v, want other than %v: %v", got, want[i], err)
				}
			})
		}
	}
}

func TestCountMatrix(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       int
		err        string
	}{
		{"two series", `{"status":"success","data":{"result":[{"values":[[1,"2"],[3,"4"]]},{"values":[[1,"NaN"]]}]}}`, 3, ""},
		{"none", `{"status":"success","data":{"result":[]}}`, 0, ""},
		{"error", `{"status":"error","error":"too much"}`, 0, "too much"},
		{"no JSON", `<html>`, 0, "invalid character"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := countMatrix([]byte(c.body))
			if d.Samples != c.want || (err != nil) != (c.err != "") || (err != nil && !contains(err, c.err)) {
				t.Errorf("got %v, %v", d, err)
			}
		})
	}
}
