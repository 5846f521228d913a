package series_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/promtable/promtable/series"
)

// Order of qualifiers is order of time.
func TestQualifierOrder(t *testing.T) {
	deltas := []uint32{0, 1, 127, 128, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 2919876608, 2920876608, 1<<32 - 2, 1<<32 - 1}
	var last []byte
	for _, delta := range deltas {
		qual := series.AppendQualifier([]byte("dst"), delta)[3:]
		if got, err := series.ParseQualifier(qual); got != delta || err != nil || len(qual) != series.QualifierSize {
			t.Errorf("ParseQualifier(%x) = %d, %v, want %d", qual, got, err, delta)
		}
		if last != nil && bytes.Compare(last, qual) >= 0 {
			t.Errorf("%x of delta %d does not sort after %x", qual, delta, last)
		}
		last = qual
	}
}

func TestParseQualifierCorrupt(t *testing.T) {
	for _, size := range []int{0, 1, 3, 5, 8, 12} {
		if _, err := series.ParseQualifier(make([]byte, size)); !errors.Is(err, series.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want ErrCorrupt", size, err)
		}
	}
	if _, err := series.ParseQualifier(make([]byte, 1<<20)); !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 1024 {
		t.Errorf("1 MB: %.200v, want a short ErrCorrupt", err)
	}
}
