package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/promtable/promtable/bucketstore/bigtable/bigtabletest"
	"github.com/promtable/promtable/bucketstore/disk"
)

// TestLittleSpace: below the floor every kind of write is a 503 that says why, and reads go
// on. With more space writing resumes.
func TestLittleSpace(t *testing.T) {
	for _, tt := range []struct {
		name string
		args func(t *testing.T, dir string) []string
	}{
		{"embedded", func(_ *testing.T, dir string) []string { return []string{"--storage.path=" + dir} }},
		{"the log in front of Bigtable", func(t *testing.T, dir string) []string {
			t.Setenv("BIGTABLE_EMULATOR_HOST", bigtabletest.Serve(t))
			return []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i", "--buffer.enabled", "--buffer.path=" + dir}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := startWithUsage(t, append(tt.args(t, dir), "--self-scrape-interval=1s", "--web.enable-admin-api")...)
			now := time.Now()
			a.send(t, now, 1, http.StatusNoContent, http.StatusOK, "")
			a.poll(t, "the adapter's own metrics are stored", func() string {
				if _, _, body := ask(t, "GET", a.base+"/api/v1/query?query=adapter_build_info"); !strings.Contains(body, `,"1"]`) {
					return body
				}
				return ""
			})
			a.free.Store(1<<30 - 1)
			a.send(t, now, 2, http.StatusServiceUnavailable, http.StatusServiceUnavailable, dir+" has 1073741823 bytes free, and takes writes from 1073741824 bytes on")
			a.deleteSeries(t, http.StatusServiceUnavailable, dir+" has 1073741823 bytes free")
			for _, metric := range []string{`adapter_disk_free_bytes{path="` + dir + `"} 1.073741823e+09`, `adapter_disk_min_free_bytes{path="` + dir + `"} 1.073741824e+09`} {
				if _, _, body := ask(t, "GET", a.base+"/metrics"); !strings.Contains(body, metric) {
					t.Errorf("no metric %s", metric)
				}
			}
			a.wantValue(t, "min_over_time(written[1h])", "1")
			a.wantValue(t, "min_over_time(otlp[1h])", "1")
			a.wantValue(t, "min_over_time(adapter_build_info[1h])", "1") // the adapter's own metrics, from before
			a.free.Store(1 << 30)
			a.send(t, now, 3, http.StatusNoContent, http.StatusOK, "")
			a.wantValue(t, "max_over_time(written[1h])", "3")
			a.wantValue(t, "max_over_time(otlp[1h])", "3")
			a.deleteSeries(t, http.StatusNoContent, "")
		})
	}
}

// deleteSeries deletes a series, and checks the answer.
func (a *spaceAdapter) deleteSeries(t *testing.T, want int, reason string) {
	t.Helper()
	if status, _, body := ask(t, "POST", a.base+"/api/v1/admin/tsdb/delete_series?match[]=none"); status != want || !strings.Contains(body, reason) {
		t.Errorf("delete_series: %d %s, want %d %s", status, body, want, reason)
	}
}

// TestRemovedDirectory: writes to a directory that was removed, of the store or of the log, are
// refused, with the reason.
func TestRemovedDirectory(t *testing.T) {
	for _, tt := range []struct{ name, removed string }{{"the store", "data"}, {"the log", "log"}} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			a := startWithUsage(t, "--storage.path="+filepath.Join(dir, "data"), "--buffer.enabled", "--buffer.path="+filepath.Join(dir, "log"))
			now := time.Now()
			a.send(t, now, 1, http.StatusNoContent, http.StatusOK, "")
			if tt.removed == "data" {
				a.poll(t, "the log has noted twice what was synced", func() string { // while the store opens files, it ends the process
					a.send(t, now, 1, http.StatusNoContent, http.StatusOK, "")
					if info, err := os.Stat(filepath.Join(dir, "log", "synced")); err != nil || info.Size() < 500 { // the second note is at byte 512
						return fmt.Sprint(info, err)
					}
					return ""
				})
			}
			removed := filepath.Join(dir, tt.removed)
			if err := os.Rename(removed, removed+".removed"); err != nil {
				t.Fatal(err)
			}
			a.send(t, now, 2, http.StatusServiceUnavailable, http.StatusServiceUnavailable, removed+" takes no writes")
			if err := os.Rename(removed+".removed", removed); err != nil { // so that the adapter can end
				t.Fatal(err)
			}
			a.send(t, now, 3, http.StatusNoContent, http.StatusOK, "")
		})
	}
}

// A spaceAdapter runs in this process. The test owns the free space of its disk.
type spaceAdapter struct {
	base string
	free atomic.Uint64
}

// startWithUsage starts an adapter with 100 GiB of free space, and waits until it is ready.
func startWithUsage(t *testing.T, args ...string) *spaceAdapter {
	t.Helper()
	o, err := parseFlags(append(args, "--web.listen-address=127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	a := new(spaceAdapter)
	a.free.Store(100 << 30)
	o.diskUsage = func(string) (disk.Usage, error) { return disk.Usage{Free: a.free.Load(), Total: 200 << 30}, nil }
	listening := make(chan string, 1)
	o.netListen = func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		if err == nil {
			listening <- l.Addr().String()
		}
		return l, err
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, log.NewNopLogger()) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	a.base = "http://" + <-listening
	a.poll(t, "the adapter is ready", func() string {
		status, _, body := ask(t, "GET", a.base+"/-/ready")
		if status != http.StatusOK {
			return body
		}
		return ""
	})
	return a
}

// poll waits until what returns "".
func (a *spaceAdapter) poll(t *testing.T, what string, missing func() string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if last = missing(); last == "" {
			return
		}
	}
	t.Fatalf("not in a minute: %s: %s", what, last)
}

// send sends a sample by remote write and one by OTLP, until both have these answers: the
// adapter asks for the free space once a second.
func (a *spaceAdapter) send(t *testing.T, now time.Time, v float64, write, otlp int, reason string) {
	t.Helper()
	raw, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "written"}},
		Samples: []prompb.Sample{{Timestamp: now.UnixMilli() + int64(v), Value: v}},
	}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	gauge := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"otlp","gauge":{"dataPoints":[{"timeUnixNano":"%d","asDouble":%g}]}}]}]}]}`,
		(now.UnixMilli()+int64(v))*1e6, v)
	for _, request := range []struct {
		path, contentType, body string
		want                    int
	}{
		{"/api/v1/write", "application/x-protobuf", string(snappy.Encode(nil, raw)), write},
		{"/api/v1/otlp/v1/metrics", "application/json", gauge, otlp},
	} {
		a.poll(t, fmt.Sprintf("%s is %d %s", request.path, request.want, reason), func() string {
			resp, err := http.Post(a.base+request.path, request.contentType, strings.NewReader(request.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var body bytes.Buffer
			if _, err := body.ReadFrom(resp.Body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != request.want || !strings.Contains(body.String(), reason) {
				return fmt.Sprintf("%d %s", resp.StatusCode, body.String())
			}
			return ""
		})
	}
}

// wantValue queries a value.
func (a *spaceAdapter) wantValue(t *testing.T, query, want string) {
	t.Helper()
	status, _, body := ask(t, "GET", a.base+"/api/v1/query?"+url.Values{"query": {query}}.Encode())
	if status != http.StatusOK || !strings.Contains(body, `,"`+want+`"]`) {
		t.Errorf("%s: %d %s, want %s", query, status, body, want)
	}
}

// TestMinFreeSpace: the flag is a size, and is refused without a local disk.
func TestMinFreeSpace(t *testing.T) {
	bigtable := []string{"--storage.backend=bigtable", "--bigtable.project=p", "--bigtable.instance=i"}
	for _, tt := range []struct {
		args    []string
		want    int64
		refused string
	}{
		{nil, 1 << 30, ""},
		{[]string{"--storage.min-free-space=10GiB"}, 10 << 30, ""},
		{[]string{"--storage.min-free-space=0"}, 0, ""},
		{append(bigtable[:3:3], "--buffer.enabled", "--storage.min-free-space=2GiB"), 2 << 30, ""},
		{append(bigtable[:3:3], "--storage.min-free-space=2GiB"), 0, "--storage.min-free-space is for the local disk"},
		{[]string{"--storage.min-free-space=-1GiB"}, 0, "--storage.min-free-space=-1GiB: give a size"},
		{[]string{"--storage.min-free-space=5%"}, 0, "--storage.min-free-space=5%: give a size"},
	} {
		o, err := parseFlags(tt.args)
		switch {
		case tt.refused != "":
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%q: error %v, want %s", tt.args, err, tt.refused)
			}
		case err != nil || int64(o.minFree.Base2Bytes) != tt.want:
			t.Errorf("%q: %s, %v, want %d", tt.args, o.minFree, err, tt.want)
		}
	}
}
