package move

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/e2e/harness"
)

// sendExemplars writes n exemplars of each of several series, with a sample, one each millisecond from begin on.
func sendExemplars(t *testing.T, to string, begin int64, n int) {
	t.Helper()
	const atOnce = 2000
	for first := 0; first < n; first += atOnce {
		var req prompb.WriteRequest
		for _, le := range []string{"0.1", "1", "+Inf"} {
			s := prompb.TimeSeries{
				Labels:  []prompb.Label{{Name: "__name__", Value: "seen_bucket"}, {Name: "le", Value: le}, {Name: "path", Value: `/a"b\c`}},
				Samples: []prompb.Sample{{Timestamp: begin + int64(first), Value: 1}},
			}
			for i := first; i < min(n, first+atOnce); i++ {
				s.Exemplars = append(s.Exemplars, prompb.Exemplar{Labels: []prompb.Label{{Name: "trace_id", Value: fmt.Sprint(le, "-", i)}}, Value: 0.1 * float64(i), Timestamp: begin + int64(i)})
			}
			req.Timeseries = append(req.Timeseries, s)
		}
		body, err := req.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := harness.Post(context.Background(), to, harness.ProtobufHeader(), harness.Compress(body))
		if err != nil || resp.Status/100 != 2 {
			t.Fatalf("write exemplars: %v, %v", resp, err)
		}
	}
}

// exemplarsOf returns what a server answers for all exemplars from a time on.
func exemplarsOf(t *testing.T, path string, begin int64) string {
	t.Helper()
	resp := harness.MustGet(t, path+"/api/v1/query_exemplars?"+url.Values{"query": {`{__name__!=""}`}, "start": {harness.FormatSeconds(begin)}, "end": {harness.FormatSeconds(begin + 3_600_000)}}.Encode(), nil)
	if resp.Status != http.StatusOK {
		t.Fatalf("%s: %v", path, resp)
	}
	return resp.Body
}

// TestExemplars: exemplars go from a Prometheus to an adapter, from there to another one, into a file and out of it, and are the same everywhere.
func TestExemplars(t *testing.T) {
	t.Parallel()
	p := harness.StartPrometheus(t, "--web.enable-remote-write-receiver", "--enable-feature=exemplar-storage")
	a, b, c := harness.StartAdapter(t, harness.Embedded(t)), harness.StartAdapter(t, harness.Emulator(t)), harness.StartAdapter(t, harness.Embedded(t))
	begin := harness.NowMillis() - 60_000
	run := func(wantOutput string, args ...string) {
		t.Helper()
		code, output := harness.RunCommand(t, harness.Backend{}, append([]string{"exemplars"}, args...)...)
		if code != 0 || !strings.Contains(output, wantOutput) {
			t.Fatalf("exemplars %q: %d\n%s", args, code, output)
		}
	}
	sendExemplars(t, p.URL("/api/v1/write"), begin, 1000)
	want := exemplarsOf(t, p.URL(""), begin)
	if strings.Count(want, "trace_id") != 3000 {
		t.Fatalf("Prometheus has %d exemplars", strings.Count(want, "trace_id"))
	}
	run("3000 exemplars", "--from="+p.URL(""), "--to="+a.URL(""))
	if got := exemplarsOf(t, a.URL(""), begin); got != want {
		t.Errorf("the adapter has\n%.2000s\nand Prometheus\n%.2000s", got, want)
	}

	// So many that they are asked for in parts.
	sendExemplars(t, a.URL("/api/v1/write"), begin+2000, 9000)
	want = exemplarsOf(t, a.URL(""), begin)
	if n := strings.Count(want, "trace_id"); n != 30_000 {
		t.Fatalf("the adapter has %d exemplars", n)
	}
	run("30000 exemplars", "--from="+a.URL(""), "--to="+b.URL(""))
	run("30000 exemplars", "--from="+a.URL(""), "--to="+b.URL("")) // again
	if got := exemplarsOf(t, b.URL(""), begin); got != want {
		t.Errorf("the other adapter has %d bytes of exemplars, and the first %d", len(got), len(want))
	}

	file := filepath.Join(t.TempDir(), "exemplars.json")
	run("30000 exemplars", "--from="+b.URL(""), "--to="+file, "--match=seen_bucket", "--start="+harness.FormatSeconds(begin))
	run("30000 exemplars", "--from="+file, "--to="+c.URL(""))
	if got := exemplarsOf(t, c.URL(""), begin); got != want {
		t.Errorf("from the file come %d bytes of exemplars, and %d are wanted", len(got), len(want))
	}
	run(`"trace_id":"1-2"`, "--from="+c.URL(""), "--to=-", `--match=seen_bucket{le="1"}`, "--end="+harness.FormatSeconds(begin+2))

	// What is wrong is named, and nothing is called done.
	refuse := func(want string, args ...string) {
		t.Helper()
		if code, output := harness.RunCommand(t, harness.Backend{}, append([]string{"exemplars"}, args...)...); code == 0 || !strings.Contains(output, want) {
			t.Errorf("exemplars %q: %d\n%s\nwant %s", args, code, output, want)
		}
	}
	if err := os.WriteFile(file, []byte("{\"seriesLabels\":{\"__name__\":\"x\"},\"exemplars\":[{\"labels\":{},\"value\":\"1\",\"timestamp\":1}]}\n{\"no\":1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuse("line 2: it has no seriesLabels", "--from="+file, "--to="+c.URL(""))
	refuse("file exists", "--from="+file, "--to="+file)
	refuse("leave them out", "--from="+file, "--to="+c.URL(""), "--match=x")
	refuse("connection refused", "--from=http://127.0.0.1:1", "--to="+c.URL(""))
	refuse("no such file", "--from=missing.json", "--to="+c.URL(""))
	refuse("--match=x{", "--from="+c.URL(""), "--to="+a.URL(""), "--match=x{")
}
