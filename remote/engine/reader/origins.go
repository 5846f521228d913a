package reader

import (
	"context"

	"github.com/promtable/promtable/series/rollup"
)

// An ExplainedPart is a run of windows whose values come from the same.
type ExplainedPart struct {
	// From and To are the ends of the first and the last window, in milliseconds.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Read names the resolutions that are read, such as "raw" and "1h".
	Read []string `json:"read"`
	// Gone says that samples of the windows are no longer kept, and Widened that windows are widened to whole buckets.
	Gone    bool `json:"gone,omitempty"`
	Widened bool `json:"widened,omitempty"`
}

// maxParts is how many parts an explanation has at most.
const maxParts = 200

// foundDays notes what was read of days that a plan takes from rollups. Nil notes nothing.
type foundDays map[dayAt]rollup.Origin

type dayAt struct {
	day        int64
	resolution rollup.Resolution
}

// note adds what a day of a series is read from.
func (f foundDays) note(piece dayPiece, from rollup.Origin) {
	if f != nil {
		f[dayAt{piece.day, piece.resolution}] |= from
	}
}

// noteFiner adds a day that is also read at a resolution, because coarser ones do not tell all of some series.
func (f foundDays) noteFiner(at dayAt) {
	if f == nil {
		return
	}
	for _, coarser := range rollup.Downsampled {
		if coarser > at.resolution {
			f[dayAt{at.day, coarser}] |= coarser.Origin() | at.resolution.Origin()
		}
	}
}

// noteWidened adds that windows which begin in a day are widened at their start.
func (f foundDays) noteWidened(at dayAt) {
	if f != nil {
		f[at] |= at.resolution.Origin() | rollup.Widened
	}
}

// origin is what Plan.Origins asks for.
func (f foundDays) origin(day int64, r rollup.Resolution) rollup.Origin { return f[dayAt{day, r}] }

// partsOf returns the parts of a query that asks for buckets, of which groups are what is read and days what was found, if that
// is known.
func (r *Reader) partsOf(ctx context.Context, q Query, groups []group, days []foundDays) []ExplainedPart {
	if q.Rollups == nil || !r.view(ctx).HasRollups {
		return nil
	}
	w := q.Rollups.Windows
	origins := make([]rollup.Origin, w.Count)
	for i, g := range groups {
		var of []rollup.Origin
		switch {
		case g.query.Rollups == nil:
			of = rollup.AllSamples(w, r.sources(ctx, g.query).From[rollup.Raw])
		case days == nil:
			of = g.query.Rollups.plan.Origins(w, nil)
		default:
			of = g.query.Rollups.plan.Origins(w, days[i].origin)
		}
		for n := range origins {
			origins[n] |= of[n]
		}
	}
	return joinParts(w, origins)
}

// joinParts joins windows with the same origins, and neighbours with others if there are too many.
func joinParts(w rollup.Windows, origins []rollup.Origin) (parts []ExplainedPart) {
	parts = joinEqual(w, origins)
	if len(parts) <= maxParts {
		return parts
	}
	for n := range maxParts {
		run := origins[n*len(origins)/maxParts : (n+1)*len(origins)/maxParts]
		var all rollup.Origin
		for _, o := range run {
			all |= o
		}
		for i := range run {
			run[i] = all
		}
	}
	return joinEqual(w, origins)
}

func joinEqual(w rollup.Windows, origins []rollup.Origin) (parts []ExplainedPart) {
	for i, o := range origins {
		at := w.Start + int64(i)*w.Step
		if i > 0 && origins[i-1] == o {
			parts[len(parts)-1].To = at
			continue
		}
		parts = append(parts, ExplainedPart{From: at, To: at, Read: o.Names(), Gone: o&rollup.Gone != 0, Widened: o&rollup.Widened != 0})
	}
	return parts
}
