package series_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/value"

	"github.com/promtable/promtable/series"
)

func TestFloatBits(t *testing.T) {
	for name, bits := range map[string]uint64{
		"zero":               0,
		"minus zero":         1 << 63,
		"one":                math.Float64bits(1),
		"+Inf":               math.Float64bits(math.Inf(1)),
		"-Inf":               math.Float64bits(math.Inf(-1)),
		"smallest":           1,
		"largest":            math.Float64bits(math.MaxFloat64),
		"normal NaN":         value.NormalNaN,
		"staleness marker":   value.StaleNaN,
		"NaN with a payload": 0x7ffdeadbeef00001,
		"signaling NaN":      0x7ff00000deadbeef,
		"negative NaN":       0xfff8000000000000,
	} {
		t.Run(name, func(t *testing.T) {
			cell := series.AppendFloat([]byte("dst"), math.Float64frombits(bits))
			got, err := series.ParseFloat(cell[3:])
			if err != nil || string(cell[:3]) != "dst" || len(cell) != 3+8 || math.Float64bits(got) != bits {
				t.Errorf("%x = %016x, %v, want %016x", cell, math.Float64bits(got), err, bits)
			}
		})
	}
}

func TestParseFloatCorrupt(t *testing.T) {
	for _, size := range []int{0, 1, 7, 9, 16, 1 << 20} {
		_, err := series.ParseFloat(make([]byte, size))
		if !errors.Is(err, series.ErrCorrupt) || len(err.Error()) > 1024 {
			t.Errorf("%d bytes: %.200v, want a short ErrCorrupt", size, err)
		}
	}
}

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
