package history

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/fileutil"
)

const (
	// blockSamples is about how many samples of a text are in memory at once, as a block that is made of them.
	blockSamples = 10_000_000
	// appendedAtOnce is how many are appended before a commit.
	appendedAtOnce = 5000
)

// OpenMetrics is a text with timestamps, as promtool tsdb create-blocks-from openmetrics takes it. It is read once for its times, and once
// for each 10 million samples, of which a temporary block is made. Exemplars in it are left out.
type OpenMetrics struct {
	path string
	sel  Selection
	text *fileutil.MmapFile
	// temporary is a directory for a copy of a text that is no file, and for blocks.
	temporary string
	// perUnit are how many samples begin in a unit, by its start, runs the units that become one block.
	perUnit map[int64]int64
	runs    []Unit
	// block is the source of the block of run, which is -1 if there is none yet.
	block *Blocks
	run   int
	// dir is the directory of the block, or of what was made of it, or empty.
	dir string
}

// NewOpenMetrics returns the text in a file, or that of in if path is "-".
func NewOpenMetrics(path string, in io.Reader, sel Selection) (o *OpenMetrics, err error) {
	o = &OpenMetrics{path: path, sel: sel, perUnit: make(map[int64]int64), run: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if o.temporary, err = os.MkdirTemp("", "promtable-import-"); err != nil {
		return o, err
	}
	if path == "-" {
		f, err := os.CreateTemp(o.temporary, "text")
		if err != nil {
			return o, err
		}
		_, err = io.Copy(f, in)
		if err = errors.Join(err, f.Close()); err != nil {
			return o, fmt.Errorf("copy the standard input: %w", err)
		}
		path = f.Name()
	}
	o.text, err = fileutil.OpenMmapFile(path)
	return o, err
}

// Parallel implements Source.
func (*OpenMetrics) Parallel() bool { return false }

// Close implements Source.
func (o *OpenMetrics) Close() (err error) {
	if o.block != nil {
		err = o.block.Close()
	}
	if o.text != nil {
		err = errors.Join(err, o.text.Close())
	}
	return errors.Join(err, os.RemoveAll(o.temporary))
}

// Units implements Source. It parses all of the text.
func (o *OpenMetrics) Units(ctx context.Context, rolled int64) (units []Unit, _ []error, err error) {
	g := grid{rolled, UnitSpan}
	err = o.each(ctx, func(t int64, _ float64, _ textparse.Parser) error {
		start, _ := g.at(t)
		o.perUnit[start]++
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(o.text.Bytes())
	for _, start := range slices.Sorted(maps.Keys(o.perUnit)) {
		n := o.perUnit[start]
		_, limit := g.at(start)
		if last := len(o.runs) - 1; last >= 0 && o.runs[last].Samples+n <= blockSamples {
			o.runs[last].Limit, o.runs[last].Samples = limit, o.runs[last].Samples+n
		} else {
			o.runs = append(o.runs, Unit{Start: start, Limit: limit, Samples: n})
		}
		if u, ok := g.unit(start, n, o.sel, string(sum[:])); ok {
			units = append(units, u)
		}
	}
	return units, nil, nil
}

// each calls fn for each sample, in the order of the text.
func (o *OpenMetrics) each(ctx context.Context, fn func(t int64, v float64, p textparse.Parser) error) error {
	p := textparse.NewOpenMetricsParser(o.text.Bytes(), labels.NewSymbolTable())
	for n := 0; ; n++ {
		if n%appendedAtOnce == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && entry == textparse.EntrySeries {
			_, t, v := p.Series()
			if t == nil {
				var ls labels.Labels
				p.Labels(&ls)
				err = fmt.Errorf("a sample of %s has no timestamp", ls)
			} else {
				err = fn(*t, v, p)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.path, err)
		}
	}
}

// Open implements Source. One unit may be open at a time.
func (o *OpenMetrics) Open(ctx context.Context, u Unit) (*Reading, error) {
	run := slices.IndexFunc(o.runs, func(r Unit) bool { return r.Start <= u.Start && u.Limit <= r.Limit })
	if run != o.run {
		if err := o.makeBlock(ctx, run); err != nil {
			return nil, err
		}
	}
	return o.block.Open(ctx, u)
}

// makeBlock replaces the block by that of a run.
func (o *OpenMetrics) makeBlock(ctx context.Context, run int) (err error) {
	if o.block != nil {
		if err := o.block.Close(); err != nil {
			return err
		}
	}
	o.block, o.run = nil, -1
	if o.dir != "" {
		if err := os.RemoveAll(o.dir); err != nil {
			return err
		}
	}
	if o.dir, err = os.MkdirTemp(o.temporary, "blocks"); err != nil {
		return err
	}
	r := o.runs[run]
	// A block writer takes samples that are up to half its length older than its newest one.
	w, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), o.dir, 2*(r.Limit-r.Start))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	app := w.Appender(ctx)
	n := 0
	err = o.each(ctx, func(t int64, v float64, p textparse.Parser) error {
		if t < r.Start || t >= r.Limit {
			return nil
		}
		var ls labels.Labels
		p.Labels(&ls)
		if _, err := app.Append(0, ls, t, v); err != nil {
			return fmt.Errorf("sample of %s at %d: %w", ls, t, err)
		}
		if n++; n%appendedAtOnce != 0 {
			return nil
		}
		err := app.Commit()
		app = w.Appender(ctx)
		return err
	})
	if err == nil {
		err = app.Commit()
	}
	if err == nil {
		_, err = w.Flush(ctx)
	}
	if err != nil {
		return err
	}
	o.block = NewBlocks([]string{o.dir}, o.sel)
	_, damaged, err := o.block.Units(ctx, 0)
	if err = errors.Join(append(damaged, err)...); err != nil {
		return err
	}
	// The writer drops them when it commits, and says nothing.
	if lost := n - int(o.block.all[0].meta.Stats.NumSamples); lost > 0 {
		return fmt.Errorf("%s: %d samples from %s are out of order, or there twice: those of a series must ascend", o.path, lost, r)
	}
	o.run = run
	return nil
}
