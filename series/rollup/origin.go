package rollup

import "sort"

// An Origin is a set of what the value of a window comes from: resolutions, see Resolution.Origin, and what follows.
type Origin uint8

const (
	// Gone says that samples of a part of the window are no longer kept, and Widened that it is widened
	// to whole buckets there.
	Gone Origin = 1 << (NumResolutions + iota)
	Widened
)

// Origin returns the set of r.
func (r Resolution) Origin() Origin { return 1 << r }

// Names returns the names of the resolutions in o.
func (o Origin) Names() []string {
	names := []string{}
	for r := range NumResolutions {
		if o&r.Origin() != 0 {
			names = append(names, r.String())
		}
	}
	return names
}

// AllSamples returns the origins of windows that are read as samples, which are there from rawFrom on,
// in milliseconds.
func AllSamples(w Windows, rawFrom int64) []Origin {
	origins := make([]Origin, w.Count)
	for i := range origins {
		to := w.Start + int64(i)*w.Step
		if to >= rawFrom {
			origins[i] |= Raw.Origin()
		}
		if to-w.Range+1 < rawFrom {
			origins[i] |= Gone
		}
	}
	return origins
}

// Origins returns those of the windows that p was made for. found returns what was read of a day that p takes from
// buckets: samples, where there are none that are right, and Widened if windows that begin in the day are. If it returns 0, and if it is nil, it is
// as planned.
func (p *Plan) Origins(w Windows, found func(day int64, r Resolution) Origin) []Origin {
	pieces := p.pieces(found)
	origins := make([]Origin, w.Count)
	for i := range origins {
		to := w.Start + int64(i)*w.Step
		after, wideTo, isWide := p.Widen(to-w.Range, to)
		if after < p.after[Raw] {
			origins[i] |= Gone
		}
		if isWide {
			origins[i] |= Widened
		}
		first := sort.Search(len(pieces), func(n int) bool { return pieces[n].to > after })
		for n, piece := range pieces[first:] {
			if piece.after >= wideTo {
				break
			}
			if n > 0 { // it does not begin there
				piece.origin &^= Widened
			}
			origins[i] |= piece.origin
		}
	}
	return origins
}

// An originPiece is a part of time, (after, to] in milliseconds, that is read from the same.
type originPiece struct {
	after, to int64
	origin    Origin
}

// pieces returns those of all spans, in order.
func (p *Plan) pieces(found func(day int64, r Resolution) Origin) (pieces []originPiece) {
	add := func(next originPiece) {
		if n := len(pieces); n > 0 && pieces[n-1].to == next.after && pieces[n-1].origin == next.origin {
			pieces[n-1].to = next.to
			return
		}
		pieces = append(pieces, next)
	}
	for _, s := range p.Spans {
		switch {
		case s.Resolution == Raw && s.After < p.after[Raw]:
			add(originPiece{s.After, min(s.To, p.after[Raw]), 0}) // nothing is kept
			if s.To > p.after[Raw] {
				add(originPiece{p.after[Raw], s.To, Raw.Origin()})
			}
		case s.Resolution == Raw || found == nil:
			add(originPiece{s.After, s.To, s.Resolution.Origin()})
		default:
			for day := DayOf(s.After + 1); day < s.To; day += Day {
				origin := found(day, s.Resolution)
				if origin == 0 {
					origin = s.Resolution.Origin()
				}
				add(originPiece{max(day, s.After), min(day+Day, s.To), origin})
			}
		}
	}
	return pieces
}
