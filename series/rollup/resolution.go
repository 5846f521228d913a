package rollup

import (
	"fmt"
	"slices"

	"github.com/promtable/promtable/series"
)

// A Resolution is one of the forms in which METRIC keeps samples: a row of the table. A finer one is less than a coarser one.
type Resolution uint8

// The names of rows of the table. Only what is special to a resolution, and tests, need one.
const (
	// Raw are the samples themselves, with their exemplars and the counts of writes.
	Raw Resolution = iota
	FiveMinutes
	OneHour
)

// A resolution is a row of the table. All of it but cost is part of the stored format.
type resolution struct {
	// name is also that of the column family, in META, in rules of retention, in --retention.resolution-<name>, in the label resolution of
	// metrics, and on the page.
	name string
	// span is that of a bucket, in milliseconds. It divides a day, and is a multiple of all that are shorter.
	span int64
	// layer is the first byte of keys in the embedded store, and layerSpan what it partitions by, in milliseconds: Day, or series.Period where
	// there is little of each day.
	layer     byte
	layerSpan int64
	// maxResets is how many resets a bucket keeps with the samples before and after.
	maxResets int
	// hasTail says that cells of floats keep the last samples of a bucket, so that windows may begin between them.
	hasTail bool
	// cost is what it costs to read the cell of a day, in samples.
	cost float64
}

// table has all resolutions, the finest first. A new row is the whole of a resolution: the next free layer is 8. A cell always holds a day.
var table = [...]resolution{
	Raw:         {name: "raw", layer: 1, layerSpan: Day},
	FiveMinutes: {name: "5m", span: 5 * 60 * 1000, layer: 6, layerSpan: Day, maxResets: 3, cost: 1000},
	OneHour:     {name: "1h", span: 60 * 60 * 1000, layer: 7, layerSpan: series.Period, maxResets: 8, hasTail: true, cost: 300},
}

// NumResolutions is the number of resolutions, Raw included.
const NumResolutions = Resolution(len(table))

// Downsampled are all resolutions but Raw: those of rollups, the finest first. Callers do not write to it.
var Downsampled = downsampled()

func downsampled() (all []Resolution) {
	for r := range NumResolutions {
		if r != Raw {
			all = append(all, r)
		}
	}
	return all
}

// Finest and Coarsest are the first and the last of Downsampled.
var (
	Finest   = Downsampled[0]
	Coarsest = Downsampled[len(Downsampled)-1]
)

// String returns the name of the resolution.
func (r Resolution) String() string {
	if r >= NumResolutions {
		return fmt.Sprintf("resolution %d", uint8(r))
	}
	return table[r].name
}

// Finer returns the next finer resolution than r, which is not Raw.
func (r Resolution) Finer() Resolution { return r - 1 }

// Span returns the span of a bucket, in milliseconds. It is 0 of Raw.
func (r Resolution) Span() int64 { return table[r].span }

// Layer returns the first byte of keys in the embedded store, and the span of its partitions, in milliseconds.
func (r Resolution) Layer() (first byte, span int64) { return table[r].layer, table[r].layerSpan }

// Family returns the family of METRIC that holds the cells of r, which is not Raw.
func (r Resolution) Family() string { return table[r].name }

// ResolutionOf returns the resolution to which a family of METRIC belongs. It is Raw of all families but those of rollups.
func ResolutionOf(family string) Resolution {
	for _, r := range Downsampled {
		if r.Family() == family {
			return r
		}
	}
	return Raw
}

// Families returns the families of rollups, sorted.
func Families() (sorted []string) {
	for _, r := range Downsampled {
		sorted = append(sorted, r.Family())
	}
	slices.Sort(sorted)
	return sorted
}

// Start returns the start of the bucket of r, which is not Raw, that has t.
func (r Resolution) Start(t int64) int64 { return startOf(t, r.Span()) }

// Floor returns the latest multiple of the span of r up to t, in milliseconds. Of Raw it is t.
func (r Resolution) Floor(t int64) int64 {
	if r == Raw {
		return t
	}
	return t - (t%r.Span()+r.Span())%r.Span()
}

// Ceil returns the first multiple of the span of r from t on, in milliseconds. Of Raw it is t.
func (r Resolution) Ceil(t int64) int64 { return -r.Floor(-t) }
