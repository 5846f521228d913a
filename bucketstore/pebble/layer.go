package pebble

import (
	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// A layer is a part of a table: the cells of some families, in stored keys with a first byte and
// days of their own. METRIC has one for the samples, one for the counts and one for the rollups
// of each resolution. So a rollup is never written into a finished day of samples, and a scan of
// some families reads the layers of these only. Any other table is one layer.
type layer struct {
	first byte
	// number is the position in table.layers.
	number   int
	families []bucketstore.FamilySpec
	// calendar is nil if the layer has no days.
	*calendar
	days daySet
}

// resolution returns that of the cells of a layer, Raw outside METRIC.
func (l *layer) resolution() bucketstore.Resolution {
	switch l.first {
	case fiveMinutesByte:
		return bucketstore.FiveMinutes
	case oneHourByte:
		return bucketstore.OneHour
	}
	return bucketstore.Raw
}

// layerBytes are the first bytes of the layers of each table.
var layerBytes = [bucketstore.NumTables][]byte{
	bucketstore.Metric:  {rawByte, countByte, fiveMinutesByte, oneHourByte},
	bucketstore.Current: {currentByte},
	bucketstore.Index:   {indexByte},
	bucketstore.Meta:    {metaByte},
}

// maxLayers is the number of layers of the table that has the most.
const maxLayers = 4

// tableOf returns the table of a layer, and what the layer is called in it.
func tableOf(first byte) (table bucketstore.Table, layer string) {
	switch first {
	case rawByte:
		return bucketstore.Metric, ""
	case currentByte:
		return bucketstore.Current, ""
	case indexByte:
		return bucketstore.Index, ""
	case metaByte:
		return bucketstore.Meta, ""
	case countByte:
		return bucketstore.Metric, "counts"
	case fiveMinutesByte:
		return bucketstore.Metric, series.Family5m
	case oneHourByte:
		return bucketstore.Metric, series.Family1h
	}
	return bucketstore.NumTables, ""
}

// A table is a table with its families.
type table struct {
	name     bucketstore.Table
	families []bucketstore.FamilySpec
	// layers are never none. Their keys have heads of one size, and their days begin with the
	// same buckets.
	layers []*layer
}

func newTable(spec bucketstore.TableSpec) *table {
	t := &table{name: spec.Table, families: spec.Families}
	for n, first := range layerBytes[spec.Table] {
		t.layers = append(t.layers, &layer{first: first, number: n, calendar: calendarOf(first)})
	}
	for _, family := range spec.Families {
		l := t.layerOf(family.Name)
		l.families = append(l.families, family)
	}
	return t
}

// layerOf returns the layer of a family.
func (t *table) layerOf(family string) *layer {
	if len(t.layers) == 1 {
		return t.layers[0]
	}
	switch family {
	case series.FamilyCount:
		return t.layers[1]
	case series.Family5m:
		return t.layers[2]
	case series.Family1h:
		return t.layers[3]
	}
	return t.layers[0]
}

// calendar is that of all layers, for what does not depend on the length of their days. It is
// nil if they have none.
func (t *table) calendar() *calendar { return t.layers[0].calendar }

// headSize is the size of what is before the row in the stored keys of the table.
func (t *table) headSize() int { return headSize(t.layers[0].first) }

// A partition is a day of a layer, whose position is among those that a splitter has.
type partition struct {
	layer int
	day   uint32
}

// layerDays are days of a layer.
type layerDays struct {
	*layer
	// exist are all of them, in order.
	exist []uint32
	// deltas are those of the cells that are looked for.
	deltas deltaRange
}

// wholeLayers returns all days of all layers of t.
func (t *table) wholeLayers() (whole []layerDays) {
	for _, l := range t.layers {
		d := layerDays{layer: l, deltas: allDeltas()}
		if l.calendar != nil {
			d.exist = l.days.all()
		}
		whole = append(whole, d)
	}
	return whole
}
