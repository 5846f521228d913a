// Package estimate says what the series and samples of a running Prometheus would cost here:
// row mutations, stored bytes, memory, nodes and money. prometheus.go and sample.go read
// Prometheus over HTTP, model.go computes, report.go prints. docs/estimate.md explains each
// figure and says where it was measured.
package estimate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/remote/jobs/retention"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
	"github.com/promtable/promtable/series/rollup"
)

// What was measured elsewhere, in bytes. docs/benchmarks.md has the runs.
const (
	chunkOverhead = chunk.QualifierSize + 1 + 6 // of a chunk: the qualifier, the encoding and the stamp
	baseBytes     = 14                          // of a row key: the base of a period, and the comma before it
	rawCellBytes  = series.QualifierSize + 8    // of a raw cell: the qualifier and the value
	unsealed      = 26_000 * time.Second        // at most, until a raw cell is sealed: docs/bigtable.md

	histogramBytes   = 38   // a native histogram of 68 buckets and 100 observations a scrape; with one observation it takes 16, with 1,000 it takes 55
	defaultPayload   = 1.33 // a float of the benchmark's series, if Prometheus has no samples yet
	embeddedOverhead = 1.03 // the files of the embedded store, for a byte of chunks
	indexRowDisk     = 13   // a row of INDEX in the embedded store
	// Memory: of an empty adapter with the embedded store, of the store's cache when it is full, and of a series.
	emptyMemory, cacheMemory, seriesMemory = 76e6, 64 << 20, 1400
	// The same on Bigtable, at its peak while an adapter creates 60,000 and 200,000 series.
	directMemory, directSeriesMemory     = 270e6, 1500
	bufferedMemory, bufferedSeriesMemory = 150e6, 2000
	// A sample in an open chunk at most, and in the log: TestMillionSeries of cmd/adapter.
	openSampleBytes, logSampleBytes = 3, 8.6
)

const (
	day        = 24 * time.Hour
	month      = 730*time.Hour + 30*time.Minute // an average one
	forEver    = 365 * day                      // at this age storage without a limit is counted
	windowTime = time.Duration(series.Window) * time.Millisecond
	periodTime = time.Duration(series.IndexPeriod) * time.Millisecond
	// prewritten is which part of the new series is written to the next index period too:
	// those of the last eighth, of which most are among the series that there are when it begins.
	prewritten = 1. / 8
)

// rollupBytes are what rollups take for each raw sample: of floats those of the benchmark's hosts, and of native histograms those of 20
// buckets at 15 s, of 21 bytes each: of histogramBytes it is in proportion. A resolution that is not here takes less than the finer one.
var rollupBytes = map[rollup.Resolution]struct{ float, histogram float64 }{
	rollup.FiveMinutes: {0.376, 4.0 * histogramBytes / 21},
	rollup.OneHour:     {0.050, 0.44 * histogramBytes / 21},
}

// Off is the retention of a rollup that is not made.
const Off time.Duration = -1

// Prices are in any currency: of a node of Bigtable, and of a GB, for which Google counts 2^30 bytes.
type Prices struct {
	NodeHour float64 `json:"node_hour"`
	SSDMonth float64 `json:"ssd_gb_month"`
	HDDMonth float64 `json:"hdd_gb_month"`
}

// DefaultPrices are what Google's list of us-central1 said in US dollars when this was written,
// without a commitment: https://cloud.google.com/bigtable/pricing. Every region has its own.
var DefaultPrices = Prices{NodeHour: 0.65, SSDMonth: 0.17, HDDMonth: 0.026}

// Config says how the adapter would run.
type Config struct {
	// Keep is how long the resolutions are kept: 0 is for ever, Off not at all.
	Keep [rollup.NumResolutions]time.Duration
	// DirectCurrent and BufferedCurrent are the intervals at which CURRENT is written.
	DirectCurrent, BufferedCurrent time.Duration
	// Adapters is how many share the load on Bigtable, at least 1. Each of them gets samples of every series, unless BySeries says that a balancer
	// sends those of a series to one of them.
	Adapters float64
	BySeries bool
	// The limits of the buffer in bytes, on the embedded store and on Bigtable.
	BufferMemory, BufferLog, BigtableMemory, BigtableLog float64
	// WrittenSeries and CachedSeries are how many series an adapter remembers, see --index.written-series and --write.cached-series.
	WrittenSeries, CachedSeries float64
	Prices                      Prices
}

// Measured is what is known of a Prometheus. Counts are of its head, as of now.
type Measured struct {
	Version          string   `json:"version"`
	Series           float64  `json:"series"`
	ChurnPerDay      float64  `json:"churn_series_per_day"` // series that end, and others take their place
	SamplesPerSecond float64  `json:"samples_per_second"`
	HistogramShare   float64  `json:"native_histogram_share"`  // of the samples, at most 1
	Labels           float64  `json:"labels_per_series"`       // on average, with the name
	KeyBytes         float64  `json:"key_bytes_per_series"`    // of the series key, on average
	PostingBytes     float64  `json:"index_bytes_per_series"`  // of the rows in INDEX, on average
	LabelTexts       float64  `json:"label_values_and_names"`  // different values, by label, and names
	Payload          float64  `json:"payload_bytes_per_float"` // in the data of a chunk of ours
	SampledSeries    int      `json:"sampled_series"`          // read for the averages
	SampledFloats    int      `json:"sampled_floats"`          // read for Payload
	Notes            []string `json:"notes"`                   // what makes the estimate less sure
}

// Mutations are rows that are written in a day.
type Mutations struct {
	Metric    float64 `json:"metric"`
	Seal      float64 `json:"seal"`
	Current   float64 `json:"current"`
	Index     float64 `json:"index"`
	Total     float64 `json:"total"`
	PerSecond float64 `json:"per_second"`
	PerSample float64 `json:"per_sample"`
}

// Kept is what a resolution takes, in GB of 10^9 bytes.
type Kept struct {
	Name    string  `json:"name"`
	Days    float64 `json:"days"` // how long it is kept, 0 for ever, less if it is not made
	PerDay  float64 `json:"gb_per_day"`
	Monthly float64 `json:"gb_per_month"`
	Total   float64 `json:"gb_total"` // at the end of Days, or after a year
}

// Disks are nodes and money of Bigtable with one kind of disk.
type Disks struct {
	Nodes float64 `json:"nodes"`
	Money float64 `json:"money_per_month"`
}

// Bigtable is the estimate of one mode, in GB.
type Bigtable struct {
	Mutations Mutations `json:"mutations_per_day"`
	Kept      []Kept    `json:"kept"`
	RawCells  float64   `json:"raw_cells_gb"` // samples that are not sealed yet
	Total     float64   `json:"gb_total"`
	SSD       Disks     `json:"ssd"`
	HDD       Disks     `json:"hdd"`
	// Memory and Log are those of one adapter. Direct mode has no log.
	Memory float64 `json:"memory_gb_per_adapter"`
	Log    float64 `json:"log_gb_per_adapter"`
}

// Embedded is the estimate of the embedded store, in GB.
type Embedded struct {
	Kept   []Kept  `json:"kept"`
	Log    float64 `json:"log_gb"` // of the buffer
	Total  float64 `json:"gb_total"`
	Memory float64 `json:"memory_gb"`
	// OpenChunks is the memory of whole windows. With a lower --buffer.max-memory chunks are written early.
	OpenChunks float64 `json:"open_chunks_gb"`
}

// An Estimate says what a Prometheus would cost.
type Estimate struct {
	Measured        Measured `json:"measured"`
	SamplesPerChunk float64  `json:"samples_per_chunk"`
	ChunkOverhead   float64  `json:"chunk_overhead_bytes"`  // of a chunk, beside its samples
	BytesPerSample  float64  `json:"bytes_per_sample"`      // of chunks in Bigtable, with their share of the row key
	IndexRows       float64  `json:"index_rows_per_series"` // in an index period
	Direct          Bigtable `json:"bigtable_direct"`
	Buffered        Bigtable `json:"bigtable_buffered"`
	Embedded        Embedded `json:"embedded"`
	Adapters        float64  `json:"adapters"`
	Prices          Prices   `json:"prices"`
}

// New returns the estimate for m, which has series and samples.
func New(m Measured, cfg Config) Estimate {
	samples := m.SamplesPerSecond * day.Seconds()
	// A series that ends and the one in its place have a chunk each in the window of the change.
	chunks := min(samples, m.Series*perDay(windowTime)+m.ChurnPerDay)
	inChunk := samples / chunks
	mixed := func(float, histogram float64) float64 { return float*(1-m.HistogramShare) + histogram*m.HistogramShare }
	value := mixed(m.Payload, histogramBytes) + chunkOverhead/inChunk
	newSeries := m.ChurnPerDay / perDay(periodTime) // in an index period
	inPeriod := m.Series + newSeries + max(0, newSeries*prewritten-m.Series)
	indexRows := (inPeriod*m.Labels + m.LabelTexts) * perDay(periodTime)
	open := m.Series * inChunk * openSampleBytes
	log := m.SamplesPerSecond * 2 * windowTime.Seconds() * logSampleBytes
	m.noteLimits(inPeriod, cfg)
	writers := cfg.Adapters // of a series
	if cfg.BySeries {
		writers = 1
	}
	split := min(samples, chunks*writers) // as each adapter has a chunk of its own
	inSplit := samples / split
	e := Estimate{
		Measured: m, SamplesPerChunk: inChunk, ChunkOverhead: chunkOverhead, BytesPerSample: value + (m.KeyBytes+baseBytes)/inChunk, IndexRows: m.Labels,
		Direct: Bigtable{
			Mutations: Mutations{Metric: samples, Seal: chunks, Current: m.current(samples, cfg.DirectCurrent, writers), Index: indexRows},
			RawCells:  gb(m.SamplesPerSecond * unsealed.Seconds() * rawCellBytes), Memory: gb(directMemory + m.Series*directSeriesMemory),
		},
		Buffered: Bigtable{
			Mutations: Mutations{Metric: split, Current: m.current(samples, cfg.BufferedCurrent, writers), Index: indexRows},
			Memory:    gb(bufferedMemory + m.Series*writers/cfg.Adapters*bufferedSeriesMemory + min(cfg.BigtableMemory, open/cfg.Adapters)),
			Log:       gb(min(cfg.BigtableLog, log/cfg.Adapters)),
		},
		Embedded: Embedded{
			Log: gb(min(cfg.BufferLog, log)), OpenChunks: gb(open),
			Memory: gb(emptyMemory + cacheMemory + m.Series*seriesMemory + min(cfg.BufferMemory, open)),
		},
		Adapters: cfg.Adapters, Prices: cfg.Prices,
	}
	// kept returns what all resolutions take, with so many bytes a sample and of the index a day, which the store keeps longer by grace.
	kept := func(grace time.Duration, perSample, index float64) (all []Kept, total float64) {
		for of, age := range cfg.Keep {
			if b, ok := rollupBytes[rollup.Resolution(of)]; ok {
				perSample = mixed(b.float, b.histogram)
			}
			all = append(all, newKept(rollup.Resolution(of).String(), age, grace, samples*perSample))
		}
		all = append(all, newKept("index", longest(cfg.Keep[:]...), grace, index))
		for _, k := range all {
			total += k.Total
		}
		return all, total
	}
	inSplits := e.BytesPerSample + chunkOverhead/inSplit - chunkOverhead/inChunk // the row has one key
	for b, perSample := range map[*Bigtable]float64{&e.Direct: e.BytesPerSample, &e.Buffered: inSplits} {
		w := &b.Mutations
		w.Total = w.Metric + w.Seal + w.Current + w.Index
		w.PerSecond, w.PerSample = w.Total/day.Seconds(), w.Total/samples
		b.Kept, b.Total = kept(retention.StoreGrace, perSample, inPeriod*m.PostingBytes*perDay(periodTime))
		b.Total += b.RawCells
		b.SSD = b.disks(bigtable.NodeSSDBytes, cfg.Prices.NodeHour, cfg.Prices.SSDMonth)
		b.HDD = b.disks(bigtable.NodeHDDBytes, cfg.Prices.NodeHour, cfg.Prices.HDDMonth)
	}
	e.Embedded.Kept, e.Embedded.Total = kept(0, value*embeddedOverhead, indexRows*indexRowDisk)
	e.Embedded.Total += e.Embedded.Log
	return e
}

// noteLimits says which limits of an adapter in direct mode are too low for the series of an index period.
func (m *Measured) noteLimits(inPeriod float64, cfg Config) {
	if inPeriod > cfg.WrittenSeries {
		m.note("An index period of 6.2 days has %.0f series, and an adapter remembers %.0f of them: give it --index.written-series=%.0f, else a sample of the others reads a row of INDEX", inPeriod, cfg.WrittenSeries, math.Ceil(inPeriod))
	}
	if m.Series > cfg.CachedSeries {
		m.note("There are %.0f series, and an adapter finds %.0f by the bytes of their labels: give it --write.cached-series=%.0f, else a sample of the others costs several times as much CPU", m.Series, cfg.CachedSeries, math.Ceil(m.Series))
	}
}

func (m *Measured) note(format string, args ...any) {
	m.Notes = append(m.Notes, fmt.Sprintf(format, args...))
}

// current returns the rows of CURRENT in a day at most: one for each series, interval and adapter that gets samples of it, but no more
// than there are samples, and one for each series that ends.
func (m Measured) current(samples float64, interval time.Duration, adapters float64) float64 {
	return min(samples, adapters*m.Series*perDay(interval)+m.ChurnPerDay)
}

// newKept returns what a resolution takes that is kept for an age, which the store exceeds by grace.
func newKept(name string, age, grace time.Duration, bytesPerDay float64) Kept {
	perDay, stored := gb(bytesPerDay), age+grace
	switch age {
	case Off:
		return Kept{Name: name, Days: -1}
	case 0:
		stored = forEver
	}
	return Kept{Name: name, Days: age.Hours() / 24, PerDay: perDay, Monthly: perDay * month.Hours() / 24, Total: perDay * stored.Hours() / 24}
}

// longest returns the longest of ages, of which 0 is for ever.
func longest(ages ...time.Duration) time.Duration {
	if slices.Contains(ages, 0) {
		return 0
	}
	return slices.Max(ages)
}

// Headroom is which part of a node is planned for: Google advises to keep its CPU and its disk below 70 %.
const Headroom = 0.7

// disks returns the nodes for the rows and the bytes of b, and what a month of them costs.
func (b Bigtable) disks(nodeBytes, nodeHour, gbMonth float64) Disks {
	nodes := math.Ceil(max(Headroom, b.Mutations.PerSecond/bigtable.NodeRowWrites, b.Total*1e9/nodeBytes) / Headroom)
	return Disks{Nodes: nodes, Money: nodes*month.Hours()*nodeHour + b.Total*1e9/(1<<30)*gbMonth}
}

// perDay returns how often an interval is in a day.
func perDay(interval time.Duration) float64 { return day.Seconds() / interval.Seconds() }

func gb(bytes float64) float64 { return bytes / 1e9 }
