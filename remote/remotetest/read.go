package remotetest

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/golang/snappy"
	config_util "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
	upstream "github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

const StreamedType = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"

var ResponseTypes = []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS}

// readClient is the client that Prometheus uses.
func readClient(t testing.TB, base string, kind prompb.ReadRequest_ResponseType) upstream.ReadClient {
	t.Helper()
	u, err := url.Parse(base + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	client, err := upstream.NewReadClient("test", &upstream.ClientConfig{
		URL:                   &config_util.URL{URL: u},
		Timeout:               model.Duration(30 * time.Second),
		ChunkedReadLimit:      50_000_000,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Read answers queries through upstream's client.
func Read(t testing.TB, base string, kind prompb.ReadRequest_ResponseType, queries ...*prompb.Query) ([]ingest.Series, error) {
	t.Helper()
	set, err := readClient(t, base, kind).ReadMultiple(t.Context(), queries, false)
	if err != nil {
		return nil, err
	}
	var found []ingest.Series
	var it chunkenc.Iterator
	for set.Next() {
		s := ingest.Series{Labels: set.At().Labels()}
		it = set.At().Iterator(it)
		for it.Next() == chunkenc.ValFloat {
			ts, v := it.At()
			s.Samples = append(s.Samples, ingest.Sample{T: ts, V: v})
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, set.Err()
}

// Query asks for a range with matchers.
func Query(mint, maxt int64, ms ...*prompb.LabelMatcher) *prompb.Query {
	return &prompb.Query{StartTimestampMs: mint, EndTimestampMs: maxt, Matchers: ms}
}

func Eq(name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Type: prompb.LabelMatcher_EQ, Name: name, Value: value}
}

func Re(name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: name, Value: value}
}

// PostRead sends a read request as it is.
func PostRead(t testing.TB, base string, req *prompb.ReadRequest) Answer {
	t.Helper()
	return Post(t, base+"/api/v1/read", TypeV1, wiretest.Marshal(t, req))
}

func StreamedRequest() *prompb.ReadRequest {
	return &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries:               []*prompb.Query{Query(0, 1)},
	}
}

// RawRead posts req and returns what could be read of the answer.
func RawRead(t testing.TB, ctx context.Context, base string, req *prompb.ReadRequest) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, wiretest.Marshal(t, req))))
	if err != nil {
		t.Fatal(err)
	}
	return http.DefaultClient.Do(r)
}
