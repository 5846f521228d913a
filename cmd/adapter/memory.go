package main

import (
	"fmt"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// memoryOptions are the flags about the memory that the process may have.
type memoryOptions struct {
	limit bool
	ratio float64
	// there returns the memory of the container, or else of the machine, in bytes.
	there func() (uint64, error)
}

func (o *options) memoryFlags(app *kingpin.Application) {
	app.Flag("auto-gomemlimit", "Set GOMEMLIMIT from the memory of the container, or of the machine, unless it is set, and let the defaults of flags that bound memory be parts of it.").Default("true").BoolVar(&o.memory.limit)
	app.Flag("auto-gomemlimit.ratio", "The part of the memory that is used so.").Default("0.9").Float64Var(&o.memory.ratio)
}

// checkMemory makes the defaults of flags that bound memory fit into it, all together. Where that is not known they stay.
func (o *options) checkMemory() error {
	if o.memory.ratio <= 0 || o.memory.ratio > 1 {
		return fmt.Errorf("--auto-gomemlimit.ratio=%g: it has to be above 0, and at most 1", o.memory.ratio)
	}
	if !o.memory.limit || o.command != commandServe {
		return nil
	}
	there, err := o.memory.there()
	if err != nil {
		return nil
	}
	usable := units.Base2Bytes(float64(there) * o.memory.ratio)
	for _, fit := range []struct {
		flag *byteSize
		part units.Base2Bytes
	}{
		{&o.bufferMemory, 8}, // of which the process needs three times as much
		{&o.totalMemory, 4}, {&o.queryMemory, 8}, {&o.indexMemory, 8}, {&o.resultsCache, 32},
	} {
		if !o.given[fit.flag.flag] {
			fit.flag.Base2Bytes = min(fit.flag.Base2Bytes, usable/fit.part/units.MiB*units.MiB)
		}
	}
	return nil
}

// limitMemory sets GOMEMLIMIT, unless the environment has.
func (o *options) limitMemory(logger log.Logger) {
	if !o.memory.limit {
		return
	}
	if _, err := memlimit.Set(memlimit.WithRatio(o.memory.ratio), memlimit.WithProvider(o.memory.there)); err != nil {
		level.Warn(logger).Log("msg", "the memory of the container is not known: GOMEMLIMIT is not set", "err", err)
		return
	}
	level.Debug(logger).Log("msg", "memory limit of the garbage collector", "bytes", debug.SetMemoryLimit(-1))
}
