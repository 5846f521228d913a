package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	remote, promql := "one metric", "sum"
	good := digest{10, 77}
	for _, c := range []struct {
		name    string
		answers []answer
		want    []string
	}{
		{"equal", []answer{{"a", "S", remote, good}, {"b", "S", remote, good}, {"a", "P", promql, digest{3, 0}}, {"b", "P", promql, digest{3, 0}}}, nil},
		{"other number", []answer{{"a", "S", remote, digest{9, 77}}}, []string{"a, S, one metric: 9 samples"}},
		{"other values", []answer{{"a", "S", remote, good}, {"b", "C", remote, digest{10, 78}}}, []string{"b, C, one metric: 10 samples with checksum 000000000000004e"}},
		{"PromQL differs", []answer{{"a", "P", promql, digest{3, 0}}, {"b", "P", promql, digest{4, 0}}}, []string{"b, P, sum: 4 samples, but a has 3 samples"}},
		{"PromQL gives nothing", []answer{{"a", "P", promql, digest{}}}, []string{"a, P, sum: no samples"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &results{Answers: c.answers}
			r.check(map[string]digest{remote: good})
			if len(r.Problems) != len(c.want) {
				t.Fatalf("got %q, want %q", r.Problems, c.want)
			}
			for i, p := range r.Problems {
				if !strings.HasPrefix(p, c.want[i]) {
					t.Errorf("got %q, want %q", p, c.want[i])
				}
			}
		})
	}
}

func TestTable(t *testing.T) {
	r := &results{
		Date: "2026-01-02", Command: "go -C e2e/bench run .", Go: "go1.26", Platform: "linux/amd64", Cores: 2, Load: "0.25", PerRequest: 2000, Connections: 2,
		Workload: workload{Seed: 1, Series: 10, Samples: 20, Interval: 15 * time.Second, End: 1767323040000},
		Servers:  []participant{{"a", "adapter", "1"}, {"p", "Prometheus", "3"}, {"v", "Victoria", "1.79"}},
	}
	r.noter("a", "write")("CPU", 0.5)
	r.noter("a", "read")("p50", 12.34)
	r.noter("p", "write")("CPU", 2)
	r.noter("a", "write")("disk", 1234.5)
	r.noter("p", "read")("p50", 0)
	var b strings.Builder
	if err := r.writeTable(&b); err != nil {
		t.Fatal(err)
	}
	want := `2026-01-02, 2 cores, linux/amd64, go1.26, load 0.25 before

    go -C e2e/bench run .

adapter 1; Prometheus 3; Victoria 1.79. 10 series of 20 samples, one each 15s until 2026-01-02 03:04, 2000 samples a request, 2 connections; seed 1.

| | adapter | Prometheus | Victoria | adapter / Prometheus | adapter / Victoria |
|---|---:|---:|---:|---:|---:|
| **write** | | | | | |
| CPU | 0.500 | 2.00 | – | 0.250 | – |
| disk | 1234 | – | – | – | – |
| **read** | | | | | |
| p50 | 12.3 | 0 | – | – | – |

CPU time and bytes written are counted until the server has nothing left to do, for a minute at most. On disk is after a clean stop, without the adapter's reserve file and VictoriaMetrics' cache directory.
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		name   string
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{"one", []time.Duration{5}, 0.99, 5},
		{"median of two", []time.Duration{5, 6}, 0.5, 5},
		{"median of three", []time.Duration{5, 6, 7}, 0.5, 6},
		{"99 of 100", hundred, 0.99, 99},
		{"all of 100", hundred, 1, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := quantile(c.sorted, c.q); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestCPU: the CPU time of a process grows by what it computes.
func TestCPU(t *testing.T) {
	before, err := cpuOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for after := before; after == before; {
		if after, err = cpuOf(os.Getpid()); err != nil || after < before {
			t.Fatalf("%v after %v: %v", after, before, err)
		}
	}
	const noProcess = 1 << 23 // more than Linux allows
	if got, err := cpuOf(noProcess); err == nil {
		t.Errorf("no process gives %v", got)
	}
}

func TestSumMetric(t *testing.T) {
	const text = "# HELP m_total help\nm_total{table=\"A b\"} 2\nm_total{table=\"B\"} 3.5\nm_total_more 9\nn 1\n"
	if got, err := sumMetric(text, "m_total"); err != nil || got != 5.5 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := sumMetric(text, "m"); err == nil {
		t.Errorf("no metric gives %v", got)
	}
}

func TestDiskUsage(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"a": 5000, "skipped/b": 70_000, "kept/c": 11} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := diskUsage(dir, filepath.Join(dir, "skipped")); err != nil || got.length != 5011 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := diskUsage(dir, ""); err != nil || got.length != 75_011 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFlags(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string // in the error; empty is none
	}{
		{"defaults", nil, ""},
		{"many series", []string{"--series=50000", "--samples=120"}, ""},
		{"small, without reads", []string{"--series=1", "--samples=1", "--no-reads"}, ""},
		{"too few series to read", []string{"--series=1"}, "--series=1"},
		{"too short to read", []string{"--samples=10"}, "--samples=10"},
		{"no interval", []string{"--interval=0s"}, "--interval"},
		{"no connections", []string{"--connections=0"}, "--connections"},
		{"unknown server", []string{"--only=adapter,thanos"}, `--only: "thanos"`},
		{"server twice", []string{"--only=adapter,adapter"}, `--only: "adapter"`},
		{"unknown protocol", []string{"--protocol=3.0"}, `--protocol: "3.0"`},
		{"unknown backend", []string{"--backend=disk"}, "disk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseFlags(c.args)
			if (err != nil) != (c.want != "") || (err != nil && !contains(err, c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "go -C e2e/bench run ."},
		{"quoted", []string{"--series=9", "--adapter-args=--a --b"}, "go -C e2e/bench run . --series=9 '--adapter-args=--a --b'"},
		{"file left out", []string{"--json=x/y", "--no-reads", "--json", "z", "--series=9"}, "go -C e2e/bench run . --no-reads --series=9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := commandLine(c.args); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAdapterArgs(t *testing.T) {
	got := adapterArgs([]string{"--self-scrape-interval=15s", "--log.level", "debug"}, "--storage.path=x")
	want := []string{"--self-scrape-interval=15s", "--log.level", "debug", "--web.listen-address=ADDRESS", "--storage.path=x"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
