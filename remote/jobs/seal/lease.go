package seal

import (
	"slices"

	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/series"
)

// A state is the row META/seal, as JSON: the holder of the lease, and the progress of its
// walks. Times are in milliseconds.
type state struct {
	meta.Holding

	// Window is the window of the last slot, see slot. Done says that nothing is left to
	// walk in it.
	Window int64 `json:"window"`
	Done   bool  `json:"done,omitempty"`
	// Walked counts the rows that the rounds of this slot have walked, LastWalked those of
	// the last complete round.
	Walked     int64 `json:"walked"`
	LastWalked int64 `json:"last_walked"`
	// Ratio is the share of the rows that the slot before has walked.
	Ratio float64 `json:"ratio"`
	// Sealed are the windows up to which each raw family is sealed, Rounds the rounds that
	// go on from there.
	Sealed [4]int64 `json:"sealed"`
	Rounds [4]round `json:"rounds"`
	// Late is the walk of a period with late cells, Full the walks of all older periods,
	// by family.
	Late lateWalk    `json:"late,omitzero"`
	Full [4]fullWalk `json:"full"`
}

// A round walks the rows of the current periods for a family. If a slot is too short for all
// of them the next slot of the family goes on. When the round is complete, the family is
// sealed up to the window of the slot in which it began.
type round struct {
	// Window is the window of that slot. 0 is no round.
	Window   int64         `json:"window,omitempty"`
	Position jobs.Position `json:"position,omitzero"`
	Walked   int64         `json:"walked,omitempty"`
}

// begin starts a slot in s, unless s is already in it.
func (s *state) begin(t slot) {
	family := familyOf(t.window)
	if s.Sealed == [4]int64{} { // earlier windows are unknown
		for i := int64(1); i <= 4; i++ {
			w := t.window - i*series.Window
			s.Sealed[familyOf(w)] = w
		}
	}
	switch isWrong := s.Sealed[family] > t.window; { // the clock of a sealer was ahead
	case isWrong:
		s.Sealed[family] = t.window - 4*series.Window
		fallthrough
	case s.firstUnsealed(family) < firstPeriod(t.window): // too long ago for a round
		s.Full[family] = fullWalk{}
	}
	if s.Rounds[family].Window > t.window {
		s.Rounds[family] = round{}
	}
	if s.Window != t.window {
		s.Ratio = s.ratio()
		s.Window, s.Done, s.Walked = t.window, false, 0
	}
}

// firstUnsealed returns the first window of a family that is not sealed.
func (s *state) firstUnsealed(family int64) int64 { return s.Sealed[family] + 4*series.Window }

// isDone says whether nothing is left to walk in a slot.
func (s *state) isDone(t slot) bool { return s.Done && s.Window == t.window }

// ratio returns the share of the rows that the slot has walked. It is less than 1 until the
// family is sealed.
func (s *state) ratio() float64 {
	family := familyOf(s.Window)
	if s.Sealed[family] >= s.Window {
		return 1
	}
	return float64(s.Walked) / float64(max(s.LastWalked, s.Rounds[family].Walked, s.Walked+1))
}

// oldest returns the start of the oldest window that is not sealed, in milliseconds.
func (s *state) oldest() int64 { return slices.Min(s.Sealed[:]) + 4*series.Window }

// familyOf returns the number of the raw family of a window.
func familyOf(window int64) int64 { return window / series.Window & 3 }
