package harness

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// OTLPPath is the path of OTLP metrics, of a Prometheus and of an adapter.
const OTLPPath = "/api/v1/otlp/v1/metrics"

// An OTLPPair is a Prometheus and an adapter that take the same OTLP metrics, and have to store the same.
type OTLPPair struct {
	*Prometheus
	Adapter *Adapter
	// file is --otlp.config-file, which was loaded so many times.
	file    string
	reloads int
}

// StartOTLPPair starts both with a feature, or "", and the default block otlp.
func StartOTLPPair(t testing.TB, feature string, args ...string) *OTLPPair {
	t.Helper()
	p := &OTLPPair{file: filepath.Join(t.TempDir(), "otlp.yml")}
	if err := os.WriteFile(p.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args = append(args, "--otlp.config-file="+p.file)
	features := "exemplar-storage,st-storage"
	if feature != "" {
		features += "," + feature
		args = append(args, "--enable-feature="+feature)
	}
	p.Prometheus = StartPrometheus(t, "--web.enable-otlp-receiver", "--enable-feature="+features)
	p.Adapter = StartAdapter(t, Embedded(t), args...)
	return p
}

// Configure gives both a block otlp, and waits until it is in force.
func (p *OTLPPair) Configure(t testing.TB, block string) {
	t.Helper()
	p.Prometheus.Configure(t, "storage: {exemplars: {max_exemplars: 10000}}\n"+block)
	if err := os.WriteFile(p.file, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	p.reloads++
	Eventually(t, "the adapter reads "+p.file, func() error {
		if n := strings.Count(p.Adapter.Printed(), `msg="a file that has changed is loaded"`); n != p.reloads {
			return fmt.Errorf("it has read it %d times, want %d", n, p.reloads)
		}
		return nil
	})
}

// URLs returns those of a path of both.
func (p *OTLPPair) URLs(path string) []string { return []string{p.URL(path), p.Adapter.URL(path)} }

// Compare wants that both hold the same of the series with a label, and returns them,
// and how many of them have exemplars.
func (p *OTLPPair) Compare(t testing.TB, name, value string) (series []TimeSeries, withExemplars int) {
	t.Helper()
	q := Query{Mint: 0, Maxt: math.MaxInt64, Matchers: MustMatchers(t, name, "=", value)}
	want := MustRead(t, p.URL("/api/v1/read"), Streamed, q)
	if diff := DiffSeries(MustRead(t, p.Adapter.URL("/api/v1/read"), Streamed, q), want); diff != "" || len(want) == 0 {
		t.Errorf("of %d series:\n%s", len(want), diff)
	}
	var found [2][]exemplars
	for i, base := range p.URLs("/api/v1/query_exemplars") {
		data, err := GetAPI(base, url.Values{"query": {fmt.Sprintf("{%s=%q}", name, value)}, "start": {"0"}, "end": {FormatSeconds(NowMillis() + 3_600_000)}})
		if err == nil {
			err = json.Unmarshal(data, &found[i])
		}
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(found[i], func(a, b exemplars) int { return cmp.Compare(fmt.Sprint(a.SeriesLabels), fmt.Sprint(b.SeriesLabels)) })
	}
	if !reflect.DeepEqual(found[1], found[0]) {
		t.Errorf("exemplars\n%v\nwant\n%v", found[1], found[0])
	}
	return want, len(found[0])
}

// exemplars are those of a series, in an answer of the HTTP API.
type exemplars struct {
	SeriesLabels map[string]string
	Exemplars    []struct {
		Labels    map[string]string
		Value     string
		Timestamp float64
	}
}

// Send posts an OTLP request to both, and wants that they answer 200 and reject nothing.
func (p *OTLPPair) Send(t testing.TB, body []byte) {
	t.Helper()
	for _, to := range p.URLs(OTLPPath) {
		resp, err := Post(context.Background(), to, map[string]string{"Content-Type": "application/x-protobuf"}, body)
		if err != nil || resp.Status != 200 || bytes.Contains([]byte(resp.Body), []byte("rejected")) {
			t.Errorf("%s: %v, %v", to, resp, err)
		}
	}
}
