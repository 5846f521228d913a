package move

import (
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/e2e/harness"
)

// The golden blocks have 300 samples of each of four series, 15 s apart from goldenBegin on. Prometheus' TSDB of the version in their names wrote them, with
// float-chunk-encoding xor2 and start timestamps.
const (
	goldenBegin   = int64(1_767_225_600_000)
	goldenSamples = 300
)

// goldenFloats returns what the float series of the golden blocks have.
func goldenFloats() map[string][]string {
	want := make(map[string][]string)
	add := func(name, of string, start, t int64, v float64) {
		key := labels.FromStrings("__name__", name, "case", of).String()
		want[key] = append(want[key], fmt.Sprintf("%d %#x since %d", t, math.Float64bits(v), start))
	}
	for i := range int64(goldenSamples) {
		t, start := goldenBegin+i*15_000, goldenBegin-1000
		if i >= 100 {
			start = goldenBegin + 100*15_000 - 7
		}
		v := float64(i*i%977) / 8
		add("requests_total", "restart", start, t, v)
		add("requests_total", "without", 0, t, v)
		switch i % 50 {
		case 10:
			v = math.Float64frombits(0x7ff0000000000002) // a staleness marker
		case 20:
			v = math.Copysign(0, -1)
		case 30:
			v = math.Inf(1)
		case 40:
			v = math.Float64frombits(0x7ff8000000000001)
		}
		add("level", "special", 0, t+i%3, v)
	}
	return want
}

// readBlocks returns what the blocks of a directory have, and the encodings of their chunks.
func readBlocks(t *testing.T, dir string) (found map[string][]string, encodings []string) {
	t.Helper()
	metas, err := filepath.Glob(filepath.Join(dir, "*", "meta.json"))
	if err != nil || len(metas) == 0 {
		t.Fatalf("%s has no blocks: %v", dir, err)
	}
	found = make(map[string][]string)
	for _, meta := range metas {
		b, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), filepath.Dir(meta), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := tsdb.NewBlockChunkQuerier(b, math.MinInt64, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
		for set.Next() {
			key := set.At().Labels().String()
			for it := set.At().Iterator(nil); it.Next(); {
				c := it.At().Chunk
				encodings = append(encodings, c.Encoding().String())
				samples := c.Iterator(nil)
				for kind := samples.Next(); kind != chunkenc.ValNone; kind = samples.Next() {
					if kind == chunkenc.ValFloat {
						at, v := samples.At()
						found[key] = append(found[key], fmt.Sprintf("%d %#x since %d", at, math.Float64bits(v), samples.AtST()))
						continue
					}
					at, h := samples.AtFloatHistogram(nil)
					found[key] = append(found[key], fmt.Sprintf("%d %v since %d", at, h.TestExpression(), samples.AtST()))
				}
				if err := samples.Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := set.Err(); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(encodings)
	return found, slices.Compact(encodings)
}

// TestGoldenBlocks: blocks with start timestamps of Prometheus 3.15 and 3.16, whose encoders differ, go in, and out as blocks by the store and by remote read, with
// the same samples and start timestamps, bit for bit.
func TestGoldenBlocks(t *testing.T) {
	for _, version := range []string{"3.15", "3.16"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", "blocks-"+version)
			want, encodings := readBlocks(t, dir)
			if !slices.Contains(encodings, chunkenc.EncXOR2.String()) || len(want) != 4 {
				t.Fatalf("the blocks have %d series, and chunks of %s", len(want), encodings)
			}
			for key, floats := range goldenFloats() {
				if !slices.Equal(want[key], floats) {
					t.Fatalf("%s is %s, want %s", key, want[key], floats)
				}
			}
			b := harness.Embedded(t)
			mustImport(t, b, "blocks", dir)
			span := []string{"--start=" + harness.FormatSeconds(goldenBegin), "--end=" + harness.FormatSeconds(goldenBegin+2*hour)}
			closed, running := filepath.Join(t.TempDir(), "closed"), filepath.Join(t.TempDir(), "running")
			mustRun(t, b, slices.Concat([]string{"export", "blocks", closed}, span)...)
			a := harness.StartAdapter(t, b)
			mustRun(t, harness.Backend{}, slices.Concat([]string{"export", "blocks", "--url=" + a.URL("/api/v1/read"), running}, span)...)
			for _, exported := range []string{closed, running} {
				got, _ := readBlocks(t, exported)
				for key := range want {
					if !slices.Equal(got[key], want[key]) {
						t.Errorf("%s: %s is\n%.1000s, want\n%.1000s", filepath.Base(exported), key, strings.Join(got[key], "\n"), strings.Join(want[key], "\n"))
					}
				}
			}
		})
	}
}
