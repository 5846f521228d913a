package rollup

import "encoding/binary"

// Day is the span of a day in milliseconds. It is part of the stored format.
const Day int64 = 24 * 60 * 60 * 1000

// DayOf returns the start of the day that has t, in milliseconds. Of the time 0, which is in
// none, it is -Day.
func DayOf(t int64) int64 { return startOf(t, Day) }

// startOf returns the multiple of span that is the latest before t, which is not negative.
func startOf(t, span int64) int64 {
	if t <= 0 {
		return -span
	}
	return (t - 1) / span * span
}

// Qualifier returns the delta that names the cell of a day in the row of a base.
func Qualifier(day, base int64) uint32 { return uint32(max(day, base) - base) }

// DayOfCell returns the day of a cell of a rollup, or of a count, in the row of a base. Of a short qualifier
// the bytes that are not there are 0.
func DayOfCell(base int64, qualifier []byte) int64 {
	var delta [4]byte
	copy(delta[:], qualifier)
	return DayOf(base + int64(binary.BigEndian.Uint32(delta[:])) + 1)
}
