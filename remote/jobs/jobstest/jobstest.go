// Package jobstest is for models of jobs: worlds in which one thing happens after another, the same for the same seed.
package jobstest

// A Routine is a goroutine that runs in turn with the world that has started it: while one runs the other waits. So nothing in the world
// needs a lock, and the world decides what happens next.
type Routine struct {
	parked, resume chan struct{}
	hasEnded       bool
}

// Start returns a routine that will do something when it is run.
func Start(do func()) *Routine {
	r := &Routine{parked: make(chan struct{}), resume: make(chan struct{})}
	go func() {
		<-r.resume
		do()
		r.hasEnded = true
		r.parked <- struct{}{}
	}()
	return r
}

// Run lets the routine run until it passes, or ends. The world calls it.
func (r *Routine) Run() {
	r.resume <- struct{}{}
	<-r.parked
}

// Pass lets the world go on, until it runs the routine again. The routine calls it, or a goroutine that it waits for.
func (r *Routine) Pass() {
	r.parked <- struct{}{}
	<-r.resume
}

// HasEnded says whether nothing is left to run. A nil Routine has ended.
func (r *Routine) HasEnded() bool { return r == nil || r.hasEnded }
