package bigtable

import (
	"fmt"
	"math"

	"cloud.google.com/go/bigtable"

	"github.com/promtable/promtable/bucketstore"
)

// Limits of Bigtable, from its page of quotas. Rows are checked before they are sent: one
// bad row would fail its whole request. The emulator has no such limits, so tests would not
// notice.
const (
	maxKeySize       = 4096
	maxQualifierSize = 16 << 10
	// maxValueSize is what Google advises for a cell; it refuses 100 MB.
	maxValueSize = 10 << 20
	// maxOps is how many operations a request may have.
	maxOps = 100_000
	// maxMutationSize is what Google advises for a row; it refuses 256 MB.
	maxMutationSize = 100 << 20
)

// Bytes of a request beside keys, qualifiers and values: a little more than protobuf needs.
const (
	rowOverhead = 16
	opOverhead  = 32
)

// maxTime is the greatest time in milliseconds that fits into Bigtable's microseconds.
const maxTime = math.MaxInt64 / 1000

// timestamp returns t, in milliseconds, as Bigtable counts.
func timestamp(t int64) bigtable.Timestamp { return bigtable.Timestamp(t * 1000) }

// checkKey returns an error unless key can be a row key.
func checkKey(key []byte) error {
	if len(key) == 0 {
		return fmt.Errorf("row key is empty, want 1 to %d bytes", maxKeySize)
	}
	if len(key) > maxKeySize {
		return fmt.Errorf("row key %.80q… has %d bytes, want at most %d", key, len(key), maxKeySize)
	}
	return nil
}

// checkMutation estimates the bytes of m in a request, or returns why Bigtable would refuse
// it.
func checkMutation(m *bucketstore.Mutation) (size int, err error) {
	if err := checkKey(m.Key); err != nil {
		return 0, err
	}
	if len(m.Ops) > maxOps {
		return 0, fmt.Errorf("row %.80q: %d operations, want at most %d", m.Key, len(m.Ops), maxOps)
	}
	size = len(m.Key) + rowOverhead
	for i := range m.Ops {
		if err := checkOp(&m.Ops[i]); err != nil {
			return 0, fmt.Errorf("row %.80q: %w", m.Key, err)
		}
		size += len(m.Ops[i].Family) + len(m.Ops[i].Qualifier) + len(m.Ops[i].Value) + opOverhead
	}
	if size > maxMutationSize {
		return 0, fmt.Errorf("row %.80q: mutation of %d bytes, want at most %d", m.Key, size, maxMutationSize)
	}
	return size, nil
}

// checkOp returns an error if Bigtable would refuse op.
func checkOp(op *bucketstore.Op) error {
	switch {
	case op.Kind > bucketstore.Add:
		return fmt.Errorf("operation of unknown kind %d", op.Kind)
	case len(op.Qualifier) > maxQualifierSize:
		return fmt.Errorf("family %s: qualifier %.80q… has %d bytes, want at most %d", op.Family, op.Qualifier, len(op.Qualifier), maxQualifierSize)
	case len(op.Value) > maxValueSize:
		return fmt.Errorf("column %s:%.80q: value has %d bytes, want at most %d", op.Family, op.Qualifier, len(op.Value), maxValueSize)
	case op.Time < 0 || op.Time > maxTime:
		return fmt.Errorf("column %s:%.80q: time %d is not in 0 to %d", op.Family, op.Qualifier, op.Time, int64(maxTime))
	}
	return nil
}

// checkOps returns an error that is bucketstore.ErrTable unless the table has all families
// that muts name, or another one if an operation is not for its family.
func (t *table) checkOps(muts []bucketstore.Mutation) error {
	for i := range muts {
		for j := range muts[i].Ops {
			op := &muts[i].Ops[j]
			family, ok := t.families[op.Family]
			if !ok {
				return t.checkFamily(op.Family)
			}
			if err := family.CheckOp(op); err != nil {
				return fmt.Errorf("row %.80q of table %s: %w", muts[i].Key, t.name, err)
			}
		}
	}
	return nil
}

// isNoOp says whether op changes nothing: no time is less than 0. Bigtable takes a range of
// times that ends at 0 for one without an end.
func isNoOp(op *bucketstore.Op) bool {
	return op.Kind == bucketstore.DeleteColumnBefore && op.Time == 0
}

// changes says whether ops change anything. Bigtable refuses a mutation without operations.
func changes(ops []bucketstore.Op) bool {
	for i := range ops {
		if !isNoOp(&ops[i]) {
			return true
		}
	}
	return false
}

// newMutation converts ops for the client.
func newMutation(ops []bucketstore.Op) *bigtable.Mutation {
	m := bigtable.NewMutation()
	for i := range ops {
		op := &ops[i]
		if isNoOp(op) {
			continue
		}
		switch op.Kind {
		case bucketstore.SetCell:
			m.Set(op.Family, string(op.Qualifier), timestamp(op.Time), op.Value)
		case bucketstore.DeleteColumn:
			m.DeleteCellsInColumn(op.Family, string(op.Qualifier))
		case bucketstore.DeleteColumnBefore:
			m.DeleteTimestampRange(op.Family, string(op.Qualifier), 0, timestamp(op.Time))
		case bucketstore.DeleteFamily:
			m.DeleteCellsInFamily(op.Family)
		case bucketstore.Add:
			n, _ := bucketstore.ParseSum(op.Value) // CheckOp has
			m.AddIntToCell(op.Family, string(op.Qualifier), timestamp(op.Time), n)
		}
	}
	return m
}
