package harness

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// A SentSeries is one series of a write request.
type SentSeries struct {
	Labels     []string // names and values in turn
	Points     []Point
	Starts     []int64  // start timestamps of the points, or nil
	Histograms [][]byte // encoded histograms of the protocol
}

// SeriesOf returns a series of labels that are well formed.
func SeriesOf(ls labels.Labels, points ...Point) SentSeries {
	s := SentSeries{Points: points}
	ls.Range(func(l labels.Label) { s.Labels = append(s.Labels, l.Name, l.Value) })
	return s
}

// A Protocol is a version of remote write.
type Protocol struct {
	Name        string // "1.0" or "2.0"
	message     string // as prometheus.yml names it
	ContentType string
	version     string // of the header X-Prometheus-Remote-Write-Version
	encode      func([]SentSeries) []byte
}

// RemoteWrite1 is remote write 1.0.
func RemoteWrite1() Protocol {
	return Protocol{"1.0", "prometheus.WriteRequest", "application/x-protobuf", "0.1.0", EncodeWrite1}
}

// RemoteWrite2 is remote write 2.0.
func RemoteWrite2() Protocol {
	const message = "io.prometheus.write.v2.Request"
	return Protocol{"2.0", message, "application/x-protobuf;proto=" + message, "2.0.0", encodeWrite2}
}

// RemoteWrites returns both protocols.
func RemoteWrites() []Protocol { return []Protocol{RemoteWrite1(), RemoteWrite2()} }

// Encode returns the body of a request.
func (p Protocol) Encode(series []SentSeries) []byte { return snappy.Encode(nil, p.encode(series)) }

// Header returns the headers of a request.
func (p Protocol) Header() map[string]string {
	return map[string]string{"Content-Encoding": "snappy", "Content-Type": p.ContentType, "X-Prometheus-Remote-Write-Version": p.version}
}

// Send writes series and returns the answer, whatever its status.
func (p Protocol) Send(ctx context.Context, url string, series []SentSeries) (Response, error) {
	return Post(ctx, url, p.Header(), p.Encode(series))
}

// MustSend writes series and wants the answer that they are stored.
func (p Protocol) MustSend(t testing.TB, url string, series ...SentSeries) {
	t.Helper()
	resp, err := p.Send(context.Background(), url, series)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != http.StatusNoContent {
		t.Fatalf("remote write %s: %v", p.Name, resp)
	}
}

// NowMillis returns the time in milliseconds since 1970.
func NowMillis() int64 { return time.Now().UnixMilli() }

// SomeSeries returns the series {__name__="some"} with one sample of now.
func SomeSeries() SentSeries {
	return SentSeries{Labels: []string{"__name__", "some"}, Points: []Point{PointAt(NowMillis(), 1)}}
}

// Histogram encodes a native histogram, h or fh, as the protocol has it. The start
// timestamp st and the time t are in milliseconds; 1.0 leaves st out.
func (p Protocol) Histogram(st, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) ([]byte, error) {
	switch {
	case p.Name == RemoteWrite1().Name && h != nil:
		m := prompb.FromIntHistogram(t, h)
		return m.Marshal()
	case p.Name == RemoteWrite1().Name:
		m := prompb.FromFloatHistogram(t, fh)
		return m.Marshal()
	case h != nil:
		m := writev2.FromIntHistogram(st, t, h)
		return m.Marshal()
	}
	m := writev2.FromFloatHistogram(st, t, fh)
	return m.Marshal()
}

// Compress compresses the body of a request.
func Compress(body []byte) []byte { return snappy.Encode(nil, body) }
