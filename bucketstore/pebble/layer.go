package pebble

import (
	"cmp"
	"slices"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
	"github.com/promtable/promtable/series/rollup"
)

// A layer is a part of a table: the cells of some families, in stored keys with a first byte and
// days of their own. METRIC has one for the samples, one for the counts and one for the rollups
// of each resolution. So a rollup is never written into a finished day of samples, and a scan of
// some families reads the layers of these only. Any other table is one layer.
type layer struct {
	first byte
	// family is that of the counts or the rollups of a resolution, or empty.
	family string
	// number is the position in table.layers.
	number   int
	families []bucketstore.FamilySpec
	// calendar is nil if the layer has no days.
	*calendar
	days daySet
}

// resolution returns that of the cells of a layer, Raw outside METRIC.
func (l *layer) resolution() rollup.Resolution { return rollup.ResolutionOf(l.family) }

// layersOf returns the layers of a table, in order of their keys, without specs of families. Those of METRIC are the samples, the counts, and the rollups
// of each resolution.
func layersOf(name bucketstore.Table) (all []*layer) {
	switch name {
	case bucketstore.Current:
		return []*layer{{first: currentByte}}
	case bucketstore.Index:
		return []*layer{{first: indexByte}}
	case bucketstore.Meta:
		return []*layer{{first: metaByte}}
	case bucketstore.Log:
		return nil // logs are files beside the store
	}
	all = []*layer{{first: rawByte}, {first: countByte, family: series.FamilyCount}}
	for _, r := range rollup.Downsampled {
		first, _ := r.Layer()
		all = append(all, &layer{first: first, family: r.Family()})
	}
	slices.SortFunc(all, func(a, b *layer) int { return cmp.Compare(a.first, b.first) })
	return all
}

// maxLayers is the number of layers of METRIC, which has the most: that of counts, and one for each resolution.
const maxLayers = 1 + int(rollup.NumResolutions)

// tableOf returns the table of a layer, and what the layer is called in it.
func tableOf(first byte) (table bucketstore.Table, layer string) {
	if first == countByte {
		return bucketstore.Metric, "counts"
	}
	for table := range bucketstore.NumTables {
		for _, l := range layersOf(table) {
			if l.first == first {
				return table, l.family
			}
		}
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
	t.layers = layersOf(t.name)
	for n, l := range t.layers {
		l.number, l.calendar = n, calendarOf(l.first)
	}
	for _, family := range spec.Families {
		l := t.layerOf(family.Name)
		l.families = append(l.families, family)
	}
	return t
}

// layerOf returns the layer of a family.
func (t *table) layerOf(family string) *layer {
	for _, l := range t.layers[1:] {
		if l.family == family {
			return l
		}
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
