package series

import "fmt"

const (
	// Period is the span of a bucket in milliseconds: all that a four-byte delta
	// can address, 2^32 ms, or about 49.7 days. It is part of the stored format.
	Period int64 = 1 << 32

	// Window is the span of a raw family and of a sealed chunk in milliseconds,
	// 2^23 ms, or about 2.33 hours: 512 windows in a bucket. It is part of the
	// stored format.
	Window int64 = 1 << windowBits

	// IndexPeriod is the span that one index row speaks of in milliseconds,
	// 2^29 ms, or about 6.2 days: eight in a bucket. It is part of the stored
	// format.
	IndexPeriod int64 = 1 << 29

	// MaxTime is the last storable timestamp in milliseconds, inclusive: all that
	// 13 decimal digits can write, some time in the year 2286. The first is 0.
	MaxTime int64 = 9999999999999

	// TimeDigits is the size in bytes of a time in a key.
	TimeDigits = 13

	windowBits = 23
)

// Families of the METRIC table that hold raw samples. They are part of the
// stored format.
const (
	FamilyR0   = "r0"
	FamilyR1   = "r1"
	FamilyR2   = "r2"
	FamilyR3   = "r3"
	FamilyLate = "l"
)

// FamilyChunk is the family of the METRIC table that holds sealed chunks. It is
// part of the stored format.
const FamilyChunk = "c"

// FamilyExemplar is the family of the METRIC table that holds exemplars. It is
// part of the stored format.
const FamilyExemplar = "e"

// FamilyCount is the family of the METRIC table that counts writes to the days of which a rollup
// may exist, a sum family. It is part of the stored format. Those of rollups are in package rollup.
const FamilyCount = "d"

// Families and qualifiers of the other tables. They are part of the stored
// format.
const (
	FamilyCurrent = "v"
	FamilyIndex   = "i"
	FamilyMeta    = "m"
	FamilyLog     = "l"

	QualifierCurrent = "v"
	QualifierIndex   = "i"
	QualifierMeta    = "v"
)

// MetaSchema is the key of the META row that holds the schema of the store. It
// is part of the stored format.
const MetaSchema = "schema"

// RawFamilies are the families that hold raw samples, in order of precedence: of
// several samples at one time that of the first family counts. A late sample
// came after all others of its window, so its family is the first. Callers do not
// write to RawFamilies.
var RawFamilies = [...]string{FamilyLate, FamilyR0, FamilyR1, FamilyR2, FamilyR3}

var windowFamilies = [4]string{FamilyR0, FamilyR1, FamilyR2, FamilyR3}

// Split divides t, in milliseconds, into the base of its bucket and the delta
// from it. t is in [0, MaxTime].
func Split(t int64) (base int64, delta uint32) {
	base = t &^ (Period - 1)
	return base, uint32(t - base)
}

// WindowOf returns the start of the window that holds t, in milliseconds.
func WindowOf(t int64) int64 { return t &^ (Window - 1) }

// PeriodOf returns the start of the index period that holds t, in milliseconds.
func PeriodOf(t int64) int64 { return t &^ (IndexPeriod - 1) }

// RawFamily names the METRIC family that takes a raw sample of time t when the
// writer's clock says now, both in milliseconds. The window of now and its two
// neighbours go to the family of their own number modulo four; every other
// sample is late (or early) and goes to FamilyLate. So the family of the window
// two before now takes no samples. While now is 15 minutes from both ends of its
// window, it takes none even from writers whose clocks are 15 minutes off. A writer whose
// clock is in doubt uses FamilyLate alone, see Arrival.
func RawFamily(now, t int64) string {
	w, wnow := t>>windowBits, now>>windowBits
	if w < wnow-1 || w > wnow+1 {
		return FamilyLate
	}
	return windowFamilies[w&3]
}

// AppendTime appends t, in milliseconds, as TimeDigits decimal digits, so that order
// of bytes is order of time. It panics if t is not in [0, MaxTime].
func AppendTime(dst []byte, t int64) []byte { return appendTime(dst, t, 1) }

// ParseTime reads the time in the TimeDigits bytes that b begins with, in
// milliseconds. It is not ok if those are not all digits.
func ParseTime(b []byte) (t int64, ok bool) {
	if len(b) < TimeDigits {
		return 0, false
	}
	for _, c := range b[:TimeDigits] {
		if c < '0' || c > '9' {
			return 0, false
		}
		t = t*10 + int64(c-'0')
	}
	return t, true
}

// An Arrival says where raw samples go that reach a writer at one time.
type Arrival struct {
	// Now is the writer's clock, in milliseconds.
	Now int64
	// RawFrom is the first time, in milliseconds, of samples that may go to the
	// family of their window. Those before it go to FamilyLate; it is after MaxTime
	// while the writer's clock is in doubt.
	RawFrom int64
	// LateFrom is the least time of a cell of FamilyLate, in milliseconds: what is written
	// now came after everything with an earlier one. It may be ahead of Now.
	LateFrom int64
}

// Cell returns the family and the cell time, in milliseconds, of the raw sample
// at t. A cell of FamilyLate has the time of its arrival, so that a sealer can
// tell what came after its read.
func (a Arrival) Cell(t int64) (family string, cellTime int64) {
	if t >= a.RawFrom {
		if family = RawFamily(a.Now, t); family != FamilyLate {
			return family, t
		}
	}
	return FamilyLate, max(a.Now, a.LateFrom)
}

// appendTime appends t as 13 digits. t is in [0, MaxTime] and a multiple of
// step, which is a power of two; a key with another one could be written but
// never read.
func appendTime(dst []byte, t, step int64) []byte {
	if t < 0 || t > MaxTime || t&(step-1) != 0 {
		panic(fmt.Sprintf("series: time %d is not a multiple of %d in [0, %d]", t, step, MaxTime))
	}
	// Every row key has one. Each digit waits for the one behind it, so that two
	// halves at once take half the time.
	var digits [TimeDigits]byte
	high, low := uint32(t/1e7), uint32(t%1e7)
	for i := range 6 {
		digits[5-i], high = byte('0'+high%10), high/10
		digits[12-i], low = byte('0'+low%10), low/10
	}
	digits[6] = byte('0' + low)
	return append(dst, digits[:]...)
}

// parseTime reads a time that is all of b and a multiple of step.
func parseTime(b []byte, step int64) (int64, error) {
	t, ok := ParseTime(b)
	switch {
	case !ok || len(b) != TimeDigits:
		return 0, fmt.Errorf("%w: time %q has not %d digits", ErrCorrupt, b, TimeDigits)
	case t%step != 0:
		return 0, fmt.Errorf("%w: time %d is not a multiple of %d", ErrCorrupt, t, step)
	}
	return t, nil
}
