//go:build browser

package page

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/e2e/harness"
)

// picturesVariable makes TestPictures write the pictures of the documentation, to docs:
//
//	E2E_PICTURES=1 go test -tags browser ./e2e/page -run TestPictures
const picturesVariable = "E2E_PICTURES"

const (
	pictureWidth, pictureHeight = 1440, 900
	// pictureBytes is the most that a picture may have, as all of them are in the repository.
	pictureBytes = 150_000
)

// A picture is a view of the page for the documentation.
type picture struct {
	name, scheme string
	parameters   []string // of the page
	drawn        string   // an expression of JavaScript that is true when all is to be seen
}

const drawnLines = `(() => {
	const drawn = document.querySelector("main section:not([hidden]) canvas");
	const pixels = new Uint32Array(drawn.getContext("2d").getImageData(0, 0, drawn.width, drawn.height).data.buffer);
	return new Set(pixels).size > 100;
})()`

// boardPicture is a board that is not saved.
const boardPicture = `{"title": "Shop", "variables": [{"name": "job", "label": "job", "metric": "http_requests_total"}], "panels": [
	{"title": "Requests by handler", "kind": "graph", "mode": "stacked", "exprs": ["sum by (handler) (rate(http_requests_total{job=~\"$job\"}[10m]))"]},
	{"title": "90th percentile of latencies", "kind": "graph", "exprs": ["histogram_quantile(0.9, sum(rate(http_request_duration_seconds[10m])))"]},
	{"title": "Requests now", "kind": "stat", "exprs": ["sum by (job) (rate(http_requests_total{job=~\"$job\"}[5m]))"]},
	{"title": "Instances", "kind": "table", "exprs": ["sum by (job, instance) (rate(http_requests_total{job=~\"$job\"}[5m]))"]}]}`

// pictures returns all of them.
func pictures() []picture {
	requests := "sum by (handler) (rate(http_requests_total[10m]))"
	return []picture{
		{"page", "light", []string{"expr", requests, "view", "graph", "range", "604800"}, drawnLines},
		{"page-dark", "dark", []string{"expr", requests, "view", "graph", "range", "172800"}, drawnLines},
		{"heatmap", "dark", []string{"expr", "sum(rate(http_request_duration_seconds[10m]))", "view", "graph", "range", "86400"}, drawnLines},
		{"start", "light", nil, `document.querySelectorAll("#query .examples a").length === 3`},
		{"explore", "light", []string{"tab", "explore", "metric", "http_requests_total", "range", "86400"}, drawnLines},
		{"table", "light", []string{"expr", `sum by (job, instance, handler) (rate(http_requests_total[5m]))`, "columns", "1"}, `document.querySelectorAll("#query tbody tr").length === 12`},
		{"board", "light", []string{"tab", "boards", "range", "86400", "draft", boardPicture}, `document.querySelectorAll("#boards canvas").length === 4 && document.querySelectorAll("#boards dd, #boards tbody tr").length > 8`},
		{"cardinality", "dark", []string{"tab", "cardinality", "top", "10"}, `document.querySelectorAll("#cardinality tbody tr").length > 20`},
		{"explain", "light", []string{"tab", "explain", "expr", `sum by (handler) (rate(http_requests_total{handler=~"/api/.*",code="500"}[10m]))`, "range", "172800"}, `document.querySelectorAll("#explain details").length > 2`},
		{"status", "dark", []string{"tab", "status"}, `[...document.querySelectorAll("#status dd")].every((e) => e.innerText !== "…")`},
	}
}

// TestPictures wants each view of which the documentation has a picture to draw, and writes the pictures if it is told to.
func TestPictures(t *testing.T) {
	docs, err := filepath.Abs(filepath.Join("..", "..", "docs"))
	if err != nil {
		t.Fatal(err)
	}
	harness.AdapterProgram(t) // built where its source is
	t.Chdir(t.TempDir())      // a picture shows the path of the store
	store := harness.Backend{Args: []string{"--storage.path=data"}}
	filled := harness.StartAdapter(t, store)
	writeShop(t, filled)
	filled.Terminate(t)
	a := harness.StartAdapter(t, store, "--self-scrape-interval=1s") // which has not just stored days of samples at once
	p := newPage(t, a)
	writeOwnHour(p, a)
	p.zone("UTC")
	p.do(chromedp.EmulateViewport(pictureWidth, pictureHeight))
	for _, c := range pictures() {
		t.Run(c.name, func(t *testing.T) {
			p.scheme(c.scheme)
			p.open(c.parameters...)
			p.await(c.drawn)
			if alerts := p.texts("[role=alert], .message"); len(alerts) > 0 {
				t.Errorf("the page says %q", alerts)
			}
			evaluate[bool](p, `(() => { document.activeElement.blur(); return true })()`)
			p.takePicture(docs, c.name)
		})
	}
}

// takePicture checks the size of a picture of what is to be seen, and writes it to dir if the variable is set.
func (p *browserPage) takePicture(dir, name string) {
	p.Helper()
	ctx, cancel := p.limited()
	defer cancel()
	taken, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	decoded, err := png.Decode(bytes.NewReader(taken))
	if err != nil {
		p.Fatal(err)
	}
	small := bytes.Buffer{}
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&small, fewColours(decoded)); err != nil {
		p.Fatal(err)
	}
	if size := decoded.Bounds().Size(); size.X != pictureWidth || size.Y != pictureHeight || small.Len() > pictureBytes {
		p.Errorf("the picture %s is %v, %d bytes", name, size, small.Len())
	}
	if os.Getenv(picturesVariable) == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), small.Bytes(), 0o644); err != nil {
		p.Fatal(err)
	}
}

// fewColours returns a picture with the 256 colours that are in it most, which are nearly all of them: half the bytes.
func fewColours(from image.Image) image.Image {
	plain := image.NewRGBA(from.Bounds())
	draw.Draw(plain, plain.Rect, from, plain.Rect.Min, draw.Src)
	seen := map[[3]byte]int{}
	for pixel := range slices.Chunk(plain.Pix, 4) {
		seen[[3]byte(pixel)]++
	}
	most := slices.SortedFunc(maps.Keys(seen), func(a, b [3]byte) int {
		return cmp.Or(cmp.Compare(seen[b], seen[a]), bytes.Compare(a[:], b[:]))
	})
	to := image.NewPaletted(plain.Rect, nil)
	for _, c := range most[:min(256, len(most))] {
		to.Palette = append(to.Palette, color.RGBA{c[0], c[1], c[2], 255})
	}
	nearest := map[[3]byte]uint8{}
	for c := range seen {
		nearest[c] = uint8(to.Palette.Index(color.RGBA{c[0], c[1], c[2], 255}))
	}
	at := 0
	for pixel := range slices.Chunk(plain.Pix, 4) {
		to.Pix[at] = nearest[[3]byte(pixel)]
		at++
	}
	return to
}

const (
	shopDays     = 7
	shopInterval = 2 * time.Minute
)

// writeShop writes some days of a shop, up to now: requests that follow the day, their latencies as native and as classic
// histograms, and hosts. The values depend on nothing but how long ago they are.
func writeShop(t testing.TB, a *harness.Adapter) {
	t.Helper()
	now := time.Now().Truncate(shopInterval).UnixMilli()
	steps := int(shopDays * 24 * time.Hour / shopInterval)
	at := func(i int) int64 { return now - int64(steps-1-i)*shopInterval.Milliseconds() }
	// busy is how much there is to do, about 1: little at night, most in the evening, and a peak before the end.
	busy := func(i int) float64 {
		hours := float64(i-steps) * shopInterval.Hours()
		day := 1 + 0.55*math.Sin(2*math.Pi*(hours+4)/24) + 0.2*math.Sin(4*math.Pi*(hours+1)/24)
		return day + 1.2*math.Exp(-math.Pow((hours+5)/0.7, 2))
	}
	var all []harness.SentSeries
	add := func(value func(i int) float64, labels ...string) {
		s := harness.SentSeries{Labels: labels}
		for i := range steps {
			s.Points = append(s.Points, harness.PointAt(at(i), value(i)))
		}
		all = append(all, s)
	}
	r := rand.New(rand.NewPCG(3, 7))
	counter := func(perSecond func(i int) float64) func(int) float64 {
		sum := 0.0
		return func(i int) float64 {
			sum += math.Max(0, perSecond(i)) * shopInterval.Seconds() * (1 + 0.06*r.NormFloat64())
			return math.Round(sum)
		}
	}
	handlers := map[string]float64{"/": 40, "/api/cart": 22, "/api/search": 31, "/checkout": 9}
	for n, instance := range []string{"shop-1:8080", "shop-2:8080", "shop-3:8080"} {
		for _, handler := range []string{"/", "/api/cart", "/api/search", "/checkout"} {
			rate := handlers[handler] * (0.9 + 0.1*float64(n))
			add(counter(func(i int) float64 { return rate * busy(i) }), "__name__", "http_requests_total", "code", "200", "handler", handler, "instance", instance, "job", "shop")
			add(counter(func(i int) float64 { return rate * 0.004 * math.Pow(busy(i), 2) }), "__name__", "http_requests_total", "code", "500", "handler", handler, "instance", instance, "job", "shop")
		}
		add(func(i int) float64 { return 2.1e8 + 9e7*busy(i) + 4e6*r.NormFloat64() }, "__name__", "process_resident_memory_bytes", "instance", instance, "job", "shop")
		all = append(all, shopLatency(t, steps, at, busy, instance))
		for below, le := range []string{"0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"} {
			add(counter(func(i int) float64 {
				slow := 0.12 * busy(i) // the median, in seconds
				part := []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, math.Inf(1)}[below] / slow
				return 100 * busy(i) * (1 - math.Exp(-part*part))
			}), "__name__", "http_request_duration_seconds_bucket", "instance", instance, "job", "shop", "le", le)
		}
	}
	for n, instance := range []string{"node-1:9100", "node-2:9100"} {
		for cpu := range 4 {
			add(counter(func(i int) float64 { return math.Min(0.97, 0.18+0.2*busy(i)+0.02*float64(cpu+n)) }), "__name__", "node_cpu_seconds_total", "cpu", fmt.Sprint(cpu), "instance", instance, "job", "node", "mode", "user")
		}
		add(func(i int) float64 { return 3.2e11 - 1.7e6*float64(i)*float64(1+n) }, "__name__", "node_filesystem_avail_bytes", "instance", instance, "job", "node", "mountpoint", "/")
	}
	for some := range slices.Chunk(all, 8) {
		harness.RemoteWrite2().MustSend(t, a.URL("/api/v1/write"), some...)
	}
}

// writeOwnHour writes what an adapter would have stored of itself in the hour before, had it been there: it has few requests, as one
// for a picture has, and its last minute is its own.
func writeOwnHour(p *browserPage, a *harness.Adapter) {
	p.Helper()
	var status struct {
		SelfScrape struct{ Job, Instance string }
		Metrics    map[string]float64
	}
	p.mustAsk(a, "/api/v1/status/adapter", nil, &status)
	const interval, points = 15 * time.Second, 240
	now := time.Now().UnixMilli()
	r := rand.New(rand.NewPCG(5, 11))
	var all []harness.SentSeries
	// value is told how many minutes ago it is.
	add := func(value func(ago float64) float64, labels ...string) {
		s := harness.SentSeries{Labels: append([]string{"job", status.SelfScrape.Job, "instance", status.SelfScrape.Instance}, labels...)}
		for i := range points {
			ago := time.Duration(points-i) * interval
			s.Points = append(s.Points, harness.PointAt(now-ago.Milliseconds(), value(ago.Minutes())))
		}
		all = append(all, s)
	}
	busy := func(ago float64) float64 {
		return 1 + 0.2*math.Sin(ago/7) + 0.5*math.Exp(-math.Pow((ago-22)/4, 2)) + 0.03*r.NormFloat64()
	}
	counter := func(perSecond float64) func(float64) float64 {
		sum := 0.0
		return func(ago float64) float64 {
			sum += perSecond * busy(ago) * interval.Seconds()
			return sum
		}
	}
	counters := []struct {
		perSecond float64
		labels    []string
	}{
		{500, []string{"__name__", "adapter_engine_appended_samples_total", "result", "success"}},
		{180, []string{"__name__", "adapter_engine_selected_series_total"}},
		{3, []string{"__name__", "adapter_http_requests_total", "code", "204", "handler", "write"}},
		{0.4, []string{"__name__", "adapter_http_requests_total", "code", "200", "handler", "read"}},
		{2, []string{"__name__", "adapter_api_requests_total", "code", "200", "endpoint", "query_range"}},
		{80, []string{"__name__", "adapter_results_cache_steps_total", "result", "hit"}},
		{30, []string{"__name__", "adapter_results_cache_steps_total", "result", "miss"}},
		{0.02, []string{"__name__", "adapter_pebble_compactions_total"}},
	}
	for _, c := range counters {
		add(counter(c.perSecond), c.labels...)
	}
	for _, h := range []struct {
		name, label, value string
		median             float64 // in seconds
	}{
		{"adapter_http_request_duration_seconds_bucket", "handler", "write", 0.002},
		{"adapter_api_request_duration_seconds_bucket", "endpoint", "query_range", 0.008},
	} {
		for _, le := range []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, math.Inf(1)} {
			sum := 0.0
			add(func(ago float64) float64 {
				sum += 100 * (1 - math.Exp(-math.Ln2*le/(h.median*busy(ago))))
				return math.Round(sum)
			}, "__name__", h.name, h.label, h.value, "le", strconv.FormatFloat(le, 'g', -1, 64))
		}
	}
	harness.RemoteWrite2().MustSend(p, a.URL("/api/v1/write"), all...)
	all = nil
	// Gauges end at what they are now.
	p.mustAsk(a, "/api/v1/status/adapter", nil, &status)
	shapes := map[string]func(ago float64) float64{
		"adapter_buffer_open_bytes":            func(ago float64) float64 { return 1 - 0.6*math.Mod(ago, 20)/20 },
		"adapter_buffer_log_size_bytes":        func(ago float64) float64 { return 1 - 0.7*math.Mod(ago, 30)/30 },
		"adapter_buffer_log_segments":          func(float64) float64 { return 1 },
		"adapter_disk_free_bytes":              func(ago float64) float64 { return 1 + ago/600 },
		"adapter_disk_min_free_bytes":          func(float64) float64 { return 1 },
		"adapter_pebble_disk_bytes":            func(ago float64) float64 { return 1 - ago/400 },
		"adapter_pebble_memtable_bytes":        func(ago float64) float64 { return 1 - 0.8*math.Mod(ago, 15)/15 },
		"adapter_pebble_compaction_debt_bytes": func(ago float64) float64 { return 1 - 0.5*math.Mod(ago, 12)/12 },
		"adapter_index_memory_bytes":           func(ago float64) float64 { return 1 - 0.5*ago/60 },
		"process_resident_memory_bytes":        func(ago float64) float64 { return 0.8 + 0.2*busy(ago) },
	}
	parse := parser.NewParser(parser.Options{})
	for key, v := range status.Metrics {
		ls, err := parse.ParseMetric(key)
		if err != nil {
			p.Fatal(err)
		}
		if shape, ok := shapes[ls.Get("__name__")]; ok {
			add(func(ago float64) float64 { return v * shape(ago) }, harness.SeriesOf(ls).Labels...)
		}
	}
	harness.RemoteWrite2().MustSend(p, a.URL("/api/v1/write"), all...)
}

// shopLatency is the native histogram of a process.
func shopLatency(t testing.TB, steps int, at func(int) int64, busy func(int) float64, instance string) harness.SentSeries {
	t.Helper()
	const buckets, first, every = 28, -18, 2 // at schema 2, from 2^(-19/4) = 0.04 s on
	s := harness.SentSeries{Labels: []string{"__name__", "http_request_duration_seconds", "instance", instance, "job", "shop"}}
	counts := make([]int64, buckets)
	for i := 0; i < steps; i += every {
		h := &histogram.Histogram{Schema: 2, ZeroThreshold: 1e-9, PositiveSpans: []histogram.Span{{Offset: first, Length: buckets}}}
		before := int64(0)
		for b := range counts {
			middle := math.Pow(2, (float64(first+b)-0.5)/4)
			away := math.Log(middle/(0.07*busy(i))) / 0.55
			counts[b] += int64(4000 * busy(i) * math.Exp(-away*away))
			h.Count += uint64(counts[b])
			h.Sum += float64(counts[b]) * middle
			h.PositiveBuckets = append(h.PositiveBuckets, counts[b]-before)
			before = counts[b]
		}
		encoded, err := harness.RemoteWrite2().Histogram(0, at(i), h, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Histograms = append(s.Histograms, encoded)
	}
	return s
}
