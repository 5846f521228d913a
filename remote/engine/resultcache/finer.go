package resultcache

import "maps"

// thinned returns blocks with those that are not there made from blocks of the same expression at a finer step, where
// these have steps at the times of q. The value of a step depends on no other, see whyNot, so it is the same on both grids.
// Nothing is cached, and nothing is noted as used.
func (q *query) thinned(blocks map[int64]*block, closed steps) map[int64]*block {
	finer := q.engine.cache.finer(q.key)
	for number := range closed.blocks() {
		if blocks[number] != nil {
			continue
		}
		for _, key := range finer {
			if b := q.thin(key, number, closed); b != nil && (blocks[number] == nil || b.steps.len() > blocks[number].steps.len()) {
				blocks[number] = b
			}
		}
	}
	return blocks
}

// addThinned is thinned, and caches the blocks that it makes.
func (q *query) addThinned(blocks map[int64]*block, closed steps) map[int64]*block {
	cache := q.engine.cache
	if closed.isEmpty() || len(cache.finer(q.key)) == 0 {
		return blocks
	}
	running := cache.begin(q.key.scope, q.read(closed))
	defer cache.end(running)
	found := maps.Clone(blocks)
	for number, b := range q.thinned(blocks, closed) {
		if found[number] == nil {
			cache.add(running, b, nil)
		}
	}
	return blocks
}

// finer returns the queries of an expression, with blocks, that have a step at each time at which a query has one.
func (c *Cache) finer(than queryKey) (keys []queryKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.grids[than.exprKey] {
		if g.step < than.step && than.step%g.step == 0 && than.phase%g.step == g.phase {
			keys = append(keys, queryKey{than.exprKey, g})
		}
	}
	return keys
}

// thin returns a block of q with the most consecutive steps that blocks of a finer query have, or nil if these have none.
func (q *query) thin(key queryKey, number int64, closed steps) *block {
	of := stepsOf(number).within(closed)
	fine := grid{phase: key.phase, step: key.step}
	numberOf := func(step int64) int64 { return (q.time(step) - fine.phase) / fine.step }
	blocks := q.engine.cache.peek(key, steps{numberOf(of.start), numberOf(of.limit-1) + 1})
	run := longest(of, func(step int64) bool {
		n := numberOf(step)
		b := blocks[n/blockSteps]
		return b != nil && b.steps.start <= n && n < b.steps.limit
	})
	if run.isEmpty() {
		return nil
	}
	made := &block{key: blockKey{q.key, number}, steps: run, read: q.read(run)}
	times, parts := q.times(run), []part(nil)
	for n := range (steps{numberOf(run.start), numberOf(run.limit-1) + 1}).blocks() {
		if b := blocks[n]; b != nil {
			parts = append(parts, part{b.matrix, times})
			made.sources |= b.sources
		}
	}
	made.matrix = onGrid(merge(parts), q.grid)
	return made
}

// longest returns the most consecutive steps of some for which is is true.
func longest(of steps, is func(step int64) bool) (run steps) {
	at := of.start
	for step := of.start; step <= of.limit; step++ {
		if step < of.limit && is(step) {
			continue
		}
		if step-at > run.len() {
			run = steps{at, step}
		}
		at = step + 1
	}
	return run
}
