package harness

import (
	"cmp"
	"fmt"
	"slices"
)

// A Plan is what the adapter says that it reads for a selector.
type Plan struct {
	Series int
	Rows   []PlanRange
}

// A PlanRange is a range of keys in METRIC, [Start, Limit), of whose rows the
// times [Mint, Maxt] are read, and how many rows and cells that met.
type PlanRange struct {
	Table        string
	Start, Limit string
	Mint, Maxt   int64
	Rows, Cells  int
}

// String writes the range for a message.
func (r PlanRange) String() string {
	return fmt.Sprintf("%s [%q, %q) times [%d, %d] rows %d cells %d", r.Table, r.Start, r.Limit, r.Mint, r.Maxt, r.Rows, r.Cells)
}

// IsRow says whether r is one row and no more.
func (r PlanRange) IsRow() bool { return r.Limit == r.Start+"\x00" }

// Counts returns the rows and cells that all ranges met.
func (p Plan) Counts() (rows, cells int) {
	for _, r := range p.Rows {
		rows, cells = rows+r.Rows, cells+r.Cells
	}
	return rows, cells
}

// Keys returns the least range of keys that holds all that is read.
func (p Plan) Keys() (start, limit string) {
	start = slices.MinFunc(p.Rows, func(a, b PlanRange) int { return cmp.Compare(a.Start, b.Start) }).Start
	limit = slices.MaxFunc(p.Rows, func(a, b PlanRange) int { return cmp.Compare(a.Limit, b.Limit) }).Limit
	return start, limit
}
