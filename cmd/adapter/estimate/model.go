// Package estimate says what the series and samples of a running Prometheus would cost here:
// row mutations, stored bytes, memory, nodes and money. prometheus.go and sample.go read
// Prometheus over HTTP, model.go computes, report.go prints. docs/estimate.md explains each
// figure.
package estimate

import (
	"math"
	"time"

	"github.com/promtable/promtable/bucketstore/bigtable"
	"github.com/promtable/promtable/bucketstore/retention"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/chunk"
)

// What was measured elsewhere. docs/benchmarks.md has the runs.
const (
	// chunkOverhead is what a chunk takes beside its samples: the qualifier, the encoding and
	// the stamp. See series/chunk.
	chunkOverhead = chunk.QualifierSize + 1 + 6
	// baseBytes is the base of a period, and the comma before it, in a row key.
	baseBytes = 14
	// rawCellBytes is the qualifier and the value of a raw cell.
	rawCellBytes = series.QualifierSize + 8
	// unsealed is how long a sample is a raw cell in direct mode at most: the age at which a
	// window is sealed, see docs/bigtable.md.
	unsealed = 26_000 * time.Second
	// rollup5mBytes and rollup1hBytes are what rollups take for each raw sample of the
	// benchmark's hosts, see docs/benchmarks.md.
	rollup5mBytes = 0.376
	rollup1hBytes = 0.050
	// rollup5mHistogramBytes and rollup1hHistogramBytes are the same of native histograms of 20 buckets at 15 s, of 21 bytes each: of those
	// with more it is in proportion, see rollupShare.
	rollup5mHistogramBytes = 4.0
	rollup1hHistogramBytes = 0.44
	// rollupShare is how much larger histograms of histogramBytes are than those.
	rollupShare = histogramBytes / 21.0
	// histogramBytes is a native histogram in a chunk of Prometheus: of 68 buckets and 100
	// observations a scrape, schema 3. One observation takes 16 bytes, 1,000 take 55.
	histogramBytes = 38
	// defaultPayload is what a float takes in a dense chunk of the benchmark's series, if
	// Prometheus has no samples yet.
	defaultPayload = 1.33
	// embeddedOverhead is what the files of the embedded store take for a byte of chunks:
	// twelve hours of 10,000 series, churn, and a month of one metric.
	embeddedOverhead = 1.03
	// indexRowDisk is what a row of INDEX takes in the embedded store, in bytes: 12 and 13 in
	// the runs of churn, whose series have 10.2 labels. Those that live at the turn of a period
	// are written twice.
	indexRowDisk = 13
	// The memory of an adapter with the embedded store and default flags: of an empty one, the
	// cache of the store when it is full, and of a series (1,246 to 1,736 bytes in the runs of
	// 300,000 to ten million).
	emptyMemory, cacheMemory, seriesMemory = 76e6, 64 << 20, 1400
	// The same of an adapter on Bigtable, at its peak while it creates 60,000 and 200,000 series: docs/estimate.md.
	directMemory, directSeriesMemory     = 270e6, 1500
	bufferedMemory, bufferedSeriesMemory = 150e6, 2000
	// openSampleBytes is a sample in an open chunk at most, logSampleBytes one in the log:
	// TestMillionSeries of cmd/adapter.
	openSampleBytes, logSampleBytes = 3, 8.6
	// forEver is the age at which storage without a limit is counted.
	forEver = 365 * day
)

const (
	day = 24 * time.Hour
	// month is an average one.
	month = 730*time.Hour + 30*time.Minute
	// windowTime and periodTime are a window and an index period.
	windowTime = time.Duration(series.Window) * time.Millisecond
	periodTime = time.Duration(series.IndexPeriod) * time.Millisecond
	// writtenAhead is which part of the new series is written to the next index period too:
	// those of the last eighth, of which most are among the series that there are when it begins.
	writtenAhead = 1. / 8
)

// Off is the retention of a rollup that is not made.
const Off time.Duration = -1

// Prices are in any currency.
type Prices struct {
	// NodeHour is that of a node of Bigtable, SSDMonth and HDDMonth those of a GB, for which
	// Google counts 2^30 bytes.
	NodeHour float64 `json:"node_hour"`
	SSDMonth float64 `json:"ssd_gb_month"`
	HDDMonth float64 `json:"hdd_gb_month"`
}

// DefaultPrices are what Google's list of us-central1 said in US dollars when this was written,
// without a commitment: https://cloud.google.com/bigtable/pricing. Every region has its own.
var DefaultPrices = Prices{NodeHour: 0.65, SSDMonth: 0.17, HDDMonth: 0.026}

// Config says how the adapter would run.
type Config struct {
	// Raw, Rollup5m and Rollup1h are how long the resolutions are kept. 0 is for ever, Off not
	// at all.
	Raw, Rollup5m, Rollup1h time.Duration
	// DirectCurrent and BufferedCurrent are the intervals at which CURRENT is written.
	DirectCurrent, BufferedCurrent time.Duration
	// Adapters is how many share the load on Bigtable, at least 1. In direct mode each of them gets samples of every series, with the
	// buffer each has series of its own.
	Adapters float64
	// BufferMemory and BufferLog are the limits of the buffer in bytes, on the embedded store, and BigtableMemory and BigtableLog those on
	// Bigtable.
	BufferMemory, BufferLog, BigtableMemory, BigtableLog float64
	// WrittenSeries and CachedSeries are how many series an adapter remembers, see --index.written-series and --write.cached-series.
	WrittenSeries, CachedSeries float64
	Prices                      Prices
}

// Measured is what is known of a Prometheus. Counts are of its head, as of now.
type Measured struct {
	Version string  `json:"version"`
	Series  float64 `json:"series"`
	// ChurnPerDay is how many series end, and others take their place.
	ChurnPerDay      float64 `json:"churn_series_per_day"`
	SamplesPerSecond float64 `json:"samples_per_second"`
	// HistogramShare is the part of the samples that are native histograms, of 1.
	HistogramShare float64 `json:"native_histogram_share"`
	// Labels, KeyBytes and PostingBytes are averages of a series: labels with the name, bytes of
	// the series key, and bytes of its rows in INDEX.
	Labels       float64 `json:"labels_per_series"`
	KeyBytes     float64 `json:"key_bytes_per_series"`
	PostingBytes float64 `json:"index_bytes_per_series"`
	// LabelTexts are different label values, by label, and label names.
	LabelTexts float64 `json:"label_values_and_names"`
	// Payload is what a float sample takes in the data of a chunk of ours.
	Payload float64 `json:"payload_bytes_per_float"`
	// SampledSeries were read for the averages, SampledFloats for Payload.
	SampledSeries int `json:"sampled_series"`
	SampledFloats int `json:"sampled_floats"`
	// Notes say what makes the estimate less sure.
	Notes []string `json:"notes"`
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
	Name string `json:"name"`
	// Days is how long it is kept, 0 for ever.
	Days    float64 `json:"days"`
	PerDay  float64 `json:"gb_per_day"`
	Monthly float64 `json:"gb_per_month"`
	// Total is at the end of Days, or after a year.
	Total float64 `json:"gb_total"`
}

// Disks are nodes and money of Bigtable with one kind of disk.
type Disks struct {
	Nodes float64 `json:"nodes"`
	// Money is a month.
	Money float64 `json:"money_per_month"`
}

// Bigtable is the estimate of one mode.
type Bigtable struct {
	Mutations Mutations `json:"mutations_per_day"`
	Kept      []Kept    `json:"kept"`
	// RawCells are the GB of samples that are not sealed yet.
	RawCells float64 `json:"raw_cells_gb"`
	Total    float64 `json:"gb_total"`
	SSD      Disks   `json:"ssd"`
	HDD      Disks   `json:"hdd"`
	// Memory and Log are those of one adapter, in GB. Direct mode has no log.
	Memory float64 `json:"memory_gb_per_adapter"`
	Log    float64 `json:"log_gb_per_adapter"`
}

// Embedded is the estimate of the embedded store.
type Embedded struct {
	Kept []Kept `json:"kept"`
	// Log is that of the buffer.
	Log   float64 `json:"log_gb"`
	Total float64 `json:"gb_total"`
	// Memory is in GB, of 10^9 bytes.
	Memory float64 `json:"memory_gb"`
	// OpenChunks are the bytes that whole windows need in memory, in GB. If they are more than
	// --buffer.max-memory, chunks are written early.
	OpenChunks float64 `json:"open_chunks_gb"`
}

// An Estimate says what a Prometheus would cost.
type Estimate struct {
	Measured Measured `json:"measured"`
	// SamplesPerChunk is how many samples a chunk has on average, ChunkOverhead what it takes
	// beside them in bytes.
	SamplesPerChunk float64 `json:"samples_per_chunk"`
	ChunkOverhead   float64 `json:"chunk_overhead_bytes"`
	// BytesPerSample are those of chunks in Bigtable, with their share of the row key.
	BytesPerSample float64 `json:"bytes_per_sample"`
	// IndexRows are those that a series has in an index period.
	IndexRows float64  `json:"index_rows_per_series"`
	Direct    Bigtable `json:"bigtable_direct"`
	Buffered  Bigtable `json:"bigtable_buffered"`
	Embedded  Embedded `json:"embedded"`
	Adapters  float64  `json:"adapters"`
	Prices    Prices   `json:"prices"`
}

// New returns the estimate for m, which has series and samples.
func New(m Measured, cfg Config) Estimate {
	samples := m.SamplesPerSecond * day.Seconds()
	// A series that ends and the one in its place have a chunk each in the window of the change.
	chunks := min(samples, m.Series*perDay(windowTime)+m.ChurnPerDay)
	e := Estimate{
		Measured:        m,
		SamplesPerChunk: samples / chunks,
		ChunkOverhead:   chunkOverhead,
		IndexRows:       m.Labels,
		Adapters:        cfg.Adapters,
		Prices:          cfg.Prices,
	}
	value := m.Payload*(1-m.HistogramShare) + histogramBytes*m.HistogramShare + chunkOverhead/e.SamplesPerChunk
	e.BytesPerSample = value + (m.KeyBytes+baseBytes)/e.SamplesPerChunk
	newSeries := m.ChurnPerDay / perDay(periodTime) // in an index period
	inPeriod := m.Series + newSeries + max(0, newSeries*writtenAhead-m.Series)
	indexRows := (inPeriod*m.Labels + m.LabelTexts) * perDay(periodTime)
	indexBytes := inPeriod * m.PostingBytes * perDay(periodTime)

	direct := Mutations{Metric: samples, Seal: chunks, Index: indexRows, Current: m.current(samples, cfg.DirectCurrent, cfg.Adapters)}
	buffered := Mutations{Metric: chunks, Index: indexRows, Current: m.current(samples, cfg.BufferedCurrent, 1)}
	rolled := func(float, histogram float64) float64 {
		return samples * (float*(1-m.HistogramShare) + histogram*rollupShare*m.HistogramShare)
	}
	kept := func(grace time.Duration, raw, index float64) []Kept {
		return []Kept{
			newKept("raw", cfg.Raw, grace, samples*raw),
			newKept("5m", cfg.Rollup5m, grace, rolled(rollup5mBytes, rollup5mHistogramBytes)),
			newKept("1h", cfg.Rollup1h, grace, rolled(rollup1hBytes, rollup1hHistogramBytes)),
			newKept("index", longest(cfg.Raw, cfg.Rollup5m, cfg.Rollup1h), grace, index),
		}
	}
	onBigtable := kept(retention.StoreGrace, e.BytesPerSample, indexBytes)
	e.Direct = newBigtable(direct.sum(samples), onBigtable, gb(m.SamplesPerSecond*unsealed.Seconds()*rawCellBytes), cfg.Prices)
	e.Buffered = newBigtable(buffered.sum(samples), onBigtable, 0, cfg.Prices)

	open := m.Series * e.SamplesPerChunk * openSampleBytes
	log := m.SamplesPerSecond * 2 * windowTime.Seconds() * logSampleBytes
	e.Direct.Memory = gb(directMemory + m.Series*directSeriesMemory)
	e.Buffered.Memory = gb(bufferedMemory + m.Series/cfg.Adapters*bufferedSeriesMemory + min(cfg.BigtableMemory, open/cfg.Adapters))
	e.Buffered.Log = gb(min(cfg.BigtableLog, log/cfg.Adapters))
	e.note(inPeriod, cfg)
	e.Embedded = Embedded{
		Kept:       kept(0, value*embeddedOverhead, indexRows*indexRowDisk),
		Log:        gb(min(cfg.BufferLog, log)),
		Memory:     gb(emptyMemory + cacheMemory + m.Series*seriesMemory + min(cfg.BufferMemory, open)),
		OpenChunks: gb(open),
	}
	e.Embedded.Total = total(e.Embedded.Kept) + e.Embedded.Log
	return e
}

// note says which limits of an adapter in direct mode are too low for the series of an index period.
func (e *Estimate) note(inPeriod float64, cfg Config) {
	if inPeriod > cfg.WrittenSeries {
		e.Measured.note("An index period of 6.2 days has %.0f series, and an adapter remembers %.0f of them: give it --index.written-series=%.0f, else a sample of the others reads a row of INDEX", inPeriod, cfg.WrittenSeries, math.Ceil(inPeriod))
	}
	if m := e.Measured; m.Series > cfg.CachedSeries {
		e.Measured.note("There are %.0f series, and an adapter finds %.0f by the bytes of their labels: give it --write.cached-series=%.0f, else a sample of the others costs several times as much CPU", m.Series, cfg.CachedSeries, math.Ceil(m.Series))
	}
}

// current returns the rows of CURRENT in a day at most: one for each series, interval and adapter that gets samples of it, but no more
// than there are samples, and one for each series that ends.
func (m Measured) current(samples float64, interval time.Duration, adapters float64) float64 {
	return min(samples, adapters*m.Series*perDay(interval)+m.ChurnPerDay)
}

func (m Mutations) sum(samples float64) Mutations {
	m.Total = m.Metric + m.Seal + m.Current + m.Index
	m.PerSecond = m.Total / day.Seconds()
	m.PerSample = m.Total / samples
	return m
}

// newKept returns what a resolution takes that is kept for an age, which the store exceeds by
// grace.
func newKept(name string, age, grace time.Duration, bytesPerDay float64) Kept {
	k := Kept{Name: name, Days: age.Hours() / 24, PerDay: gb(bytesPerDay), Monthly: gb(bytesPerDay) * month.Hours() / 24}
	switch age {
	case Off:
		return Kept{Name: name, Days: -1}
	case 0:
		k.Total = k.PerDay * forEver.Hours() / 24
	default:
		k.Total = k.PerDay * (age + grace).Hours() / 24
	}
	return k
}

// longest returns the longest of ages, of which 0 is for ever.
func longest(ages ...time.Duration) (most time.Duration) {
	most = Off
	for _, age := range ages {
		if age == 0 {
			return 0
		}
		most = max(most, age)
	}
	return most
}

func newBigtable(m Mutations, kept []Kept, raw float64, p Prices) Bigtable {
	b := Bigtable{Mutations: m, Kept: kept, RawCells: raw, Total: total(kept) + raw}
	disks := func(nodeBytes, price float64) Disks {
		nodes := math.Ceil(max(1, m.PerSecond/bigtable.NodeRowWrites, b.Total*1e9/nodeBytes))
		return Disks{Nodes: nodes, Money: nodes*month.Hours()*p.NodeHour + b.Total*1e9/(1<<30)*price}
	}
	b.SSD, b.HDD = disks(bigtable.NodeSSDBytes, p.SSDMonth), disks(bigtable.NodeHDDBytes, p.HDDMonth)
	return b
}

func total(kept []Kept) (sum float64) {
	for _, k := range kept {
		sum += k.Total
	}
	return sum
}

// perDay returns how often an interval is in a day.
func perDay(interval time.Duration) float64 { return day.Seconds() / interval.Seconds() }

func gb(bytes float64) float64 { return bytes / 1e9 }
