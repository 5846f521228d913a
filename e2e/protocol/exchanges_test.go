package protocol

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// An exchange is a request and the status it must get.
type exchange struct {
	name   string
	method string
	path   string
	header map[string]string
	body   []byte
	want   int
}

// TestExchanges sends what clients send, well and badly formed.
func TestExchanges(t *testing.T) {
	a := harness.StartAdapter(t, harness.Embedded(t))
	for _, e := range slices.Concat(methodExchanges(), headerExchanges(), bodyExchanges(), v2Exchanges(), readExchanges(t)) {
		t.Run(e.name, func(t *testing.T) {
			resp, err := harness.RoundTrip(context.Background(), e.method, a.URL(e.path), e.header, e.body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Status != e.want {
				t.Errorf("want %d, got %v", e.want, resp)
			}
		})
	}
	// A body that declares 4 GiB must not be allocated. Allocated memory that is never
	// touched counts here, but not in the resident size.
	if sys, limit := a.Metric(t, "go_memstats_sys_bytes"), 1e9; sys > limit {
		t.Errorf("the adapter took %g bytes of memory, more than %g", sys, limit)
	}
}

func methodExchanges() []exchange {
	body := snappy.Encode(nil, nil)
	return []exchange{
		{"write by GET", "GET", "/api/v1/write", harness.ProtobufHeader(), nil, 405},
		{"write by PUT", "PUT", "/write", harness.ProtobufHeader(), body, 405},
		{"read by GET", "GET", "/api/v1/read", harness.ProtobufHeader(), nil, 405},
		{"no such path", "POST", "/api/v1/wrote", harness.ProtobufHeader(), body, 404},
	}
}

// headerExchanges send a good request under all sorts of headers.
func headerExchanges() []exchange {
	good := snappy.Encode(nil, harness.EncodeWrite1([]harness.SentSeries{harness.SomeSeries()}))
	write := func(name string, body []byte, want int, changes ...string) exchange {
		return exchange{name, "POST", "/api/v1/write", harness.ProtobufHeader(changes...), body, want}
	}
	return []exchange{
		write("plain type", good, 204),
		write("1.0 by name", good, 204, "Content-Type", "application/x-protobuf;proto=prometheus.WriteRequest"),
		write("1.0 by name, spaced", good, 204, "Content-Type", "application/x-protobuf; proto=prometheus.WriteRequest"),
		write("no type", good, 204, "Content-Type", ""),
		write("json", good, 415, "Content-Type", "application/json"),
		write("png", good, 415, "Content-Type", "image/png"),
		write("unknown message", good, 415, "Content-Type", "application/x-protobuf;proto=prometheus.Unknown"),
		write("unknown message wins over a bad body", []byte("bad"), 415, "Content-Type", "application/x-protobuf;proto=x"),
		write("no encoding", good, 204, "Content-Encoding", ""),
		write("gzip", good, 415, "Content-Encoding", "gzip"),
		write("deflate", good, 415, "Content-Encoding", "deflate"),
		write("version header says otherwise", good, 204, "X-Prometheus-Remote-Write-Version", "2.0.0"),
	}
}

// snappyBomb is a body that declares 4 GiB, less a byte.
func snappyBomb() []byte { return []byte("\xff\xff\xff\xff\x0f\x00a") }

func bodyExchanges() []exchange {
	framed := bytes.Buffer{}
	w := snappy.NewBufferedWriter(&framed)
	w.Write(harness.EncodeWrite1([]harness.SentSeries{harness.SomeSeries()}))
	w.Close()
	write := func(name string, body []byte, want int) exchange {
		return exchange{name, "POST", "/api/v1/write", harness.ProtobufHeader(), body, want}
	}
	return []exchange{
		write("nothing", snappy.Encode(nil, nil), 204),
		write("metadata only", snappy.Encode(nil, harness.AppendBytes(nil, 3, "\x08\x01\x12\x01m")), 204),
		write("no snappy", []byte("plain"), 400),
		write("empty body", nil, 400),
		write("framed snappy", framed.Bytes(), 400),
		write("no protobuf", snappy.Encode(nil, []byte("\xff\xff\xff")), 400),
		write("cut off", snappy.Encode(nil, harness.EncodeWrite1([]harness.SentSeries{harness.SomeSeries()})[:20]), 400),
		write("bomb", snappyBomb(), 400),
		write("33 MiB of zeros", snappy.Encode(nil, make([]byte, 33<<20)), 400),
		write("more than 32 MiB on the wire", make([]byte, 32<<20+1), 413),
	}
}

// v2Exchanges break the rules of remote write 2.0 one by one.
func v2Exchanges() []exchange {
	point := harness.AppendBytes(nil, 2, harness.AppendSample(nil, harness.PointAt(harness.NowMillis(), 1), 0))
	name := harness.AppendBytes(nil, 1, "\x01\x02") // labels_refs
	symbols := func(list ...string) (req []byte) {
		for _, s := range list {
			req = harness.AppendBytes(req, 4, s)
		}
		return req
	}
	good := symbols("", "__name__", "v2")
	write := func(name string, want int, symbols []byte, fields ...[]byte) exchange {
		body := symbols
		if len(fields) > 0 {
			body = harness.AppendBytes(bytes.Clone(body), 5, bytes.Join(fields, nil))
		}
		header := harness.ProtobufHeader("Content-Type", harness.RemoteWrite2().ContentType)
		return exchange{"2.0, " + name, "POST", "/api/v1/write", header, snappy.Encode(nil, body), want}
	}
	return []exchange{
		write("good", 204, good, name, point),
		write("no series", 204, symbols("")),
		write("first symbol not empty", 400, symbols("x", "__name__", "v2"), name, point),
		write("no symbols", 400, nil, name, point),
		write("odd references", 400, good, harness.AppendBytes(nil, 1, "\x01\x02\x01"), point),
		write("reference past the symbols", 400, good, harness.AppendBytes(nil, 1, "\x01\x03"), point),
		write("no samples", 400, good, name),
	}
}

func readExchanges(t testing.TB) []exchange {
	read := func(name string, want int, body []byte) exchange {
		return exchange{"read, " + name, "POST", "/api/v1/read", harness.ProtobufHeader(), body, want}
	}
	regex := func(value string) *prompb.LabelMatcher {
		return &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: value}
	}
	encode := func(mint, maxt int64, m *prompb.LabelMatcher, as ...prompb.ReadRequest_ResponseType) []byte {
		q := &prompb.Query{StartTimestampMs: mint, EndTimestampMs: maxt, Matchers: []*prompb.LabelMatcher{m}}
		data, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{q}, AcceptedResponseTypes: as})
		if err != nil {
			t.Fatal(err)
		}
		return snappy.Encode(nil, data)
	}
	return []exchange{
		read("no answer type is SAMPLES", 200, encode(0, math.MaxInt64, regex("s.*"))),
		read("all of time", 200, encode(math.MinInt64, math.MaxInt64, regex("s.*"), harness.Streamed)),
		read("end before start", 200, encode(10, 1, regex("s.*"), harness.Streamed)),
		read("unknown answer types", 400, encode(0, 1, regex("s.*"), 7, 8)),
		read("unknown answer type first", 200, encode(0, 1, regex("s.*"), 7, harness.Samples)),
		read("bad regex", 400, encode(0, 1, regex("("), harness.Samples)),
		read("bad regex, streamed", 400, encode(0, 1, regex("("), harness.Streamed)),
		read("no snappy", 400, []byte("plain")),
		read("bomb", 400, snappyBomb()),
		read("no protobuf", 400, snappy.Encode(nil, []byte(strings.Repeat("\xff", 9)))),
	}
}
