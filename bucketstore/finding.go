package bucketstore

import "fmt"

// A Finding is something that a check of what is stored found to be wrong.
type Finding struct {
	// Where names the file, or the row and its table. What says what is wrong with it.
	Where, What string
	// Repair says what a repair does, and what is lost by it. It is empty if there is none.
	Repair string
	// Repaired says that it was done.
	Repaired bool
}

// String returns f in one line, without the repair.
func (f Finding) String() string { return fmt.Sprintf("%s: %s", f.Where, f.What) }
