package engine

import (
	"fmt"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/series"
)

// rawFamilies are the parts of a METRIC row that hold raw samples, in the order
// of the store: what stands in an earlier one wins at equal times. So a late
// sample, which came after the window of its time was open, wins over one that
// came while it was.
var rawFamilies = [...]string{series.FamilyLate, series.FamilyR0, series.FamilyR1, series.FamilyR2, series.FamilyR3}

// addRow appends the samples of a row that begins at base. Rows come in time
// order.
func (b *chunkBuilder) addRow(base int64, cells []bucketstore.Cell) error {
	runs := splitRuns(cells)
	for {
		next := -1
		for i := range runs {
			if len(runs[i]) > 0 && (next < 0 || string(runs[i][0].Qualifier) < string(runs[next][0].Qualifier)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		cell := runs[next][0]
		for i := next; i < len(runs); i++ {
			if len(runs[i]) > 0 && string(runs[i][0].Qualifier) == string(cell.Qualifier) {
				runs[i] = runs[i][1:]
			}
		}
		if err := b.addCell(base, cell); err != nil {
			return err
		}
	}
	b.bytes = b.Bytes()
	return nil
}

// splitRuns cuts the cells of a row into those of each raw family.
func splitRuns(cells []bucketstore.Cell) (runs [len(rawFamilies)][]bucketstore.Cell) {
	for i, family := range rawFamilies {
		n := 0
		for n < len(cells) && cells[n].Family == family {
			n++
		}
		runs[i], cells = cells[:n], cells[n:]
	}
	return runs
}

func (b *chunkBuilder) addCell(base int64, cell bucketstore.Cell) error {
	delta, err := series.ParseQualifier(cell.Qualifier)
	if err != nil {
		return fmt.Errorf("family %s: %w", cell.Family, err)
	}
	v, err := series.ParseValue(cell.Value)
	if err == nil {
		err = b.append(base+int64(delta), v)
	}
	if err != nil {
		return fmt.Errorf("family %s, delta %d: %w", cell.Family, delta, err)
	}
	return nil
}
