package queries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
)

// reloadInterval is how often the file of rules is read again. It is read whole: times of files are coarse, and where
// directories are swapped, as Kubernetes does, they may go back.
const reloadInterval = 2 * time.Second

// A BlockFile has the rules of a file. A nil one has none. It is safe for concurrent use.
type BlockFile struct {
	path   string
	logger log.Logger
	good   prometheus.Gauge
	loaded atomic.Pointer[loadedRules]
}

// loadedRules are the rules in force.
type loadedRules struct {
	rules []Rule
	// text is what was read last, and err what is wrong with it, or nil.
	text []byte
	err  error
}

// OpenBlockFile reads a file of rules.
func OpenBlockFile(path string, logger log.Logger, reg prometheus.Registerer) (*BlockFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rules, err := parseFile(text)
	if err != nil {
		return nil, fmt.Errorf("file %s, %w", path, err)
	}
	f := &BlockFile{path: path, logger: logger, good: metricset.New(reg).Gauge("adapter_query_block_file_last_reload_successful",
		"1 if the rules in force are those that --query.block-file has now, 0 if it could not be read again.")}
	f.good.Set(1)
	f.loaded.Store(&loadedRules{rules: rules, text: text})
	return f, nil
}

// Run reads the file again when it changes, until ctx ends.
func (f *BlockFile) Run(ctx context.Context) {
	if f == nil {
		return
	}
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.reload()
		}
	}
}

// reload reads the file again. If something is wrong with it, the rules before stay in force, and that is logged once.
func (f *BlockFile) reload() {
	before := f.loaded.Load()
	text, err := os.ReadFile(f.path)
	rules := before.rules
	if err == nil {
		if before.err == nil && bytes.Equal(text, before.text) {
			return
		}
		var parsed []Rule
		if parsed, err = parseFile(text); err == nil {
			rules = parsed
		}
	}
	f.loaded.Store(&loadedRules{rules, text, err})
	if err == nil {
		f.good.Set(1)
		level.Info(f.logger).Log("msg", "rules that block queries are loaded", "file", f.path, "rules", len(rules))
		return
	}
	f.good.Set(0)
	if before.err == nil || before.err.Error() != err.Error() {
		level.Error(f.logger).Log("msg", "rules that block queries are not loaded, those before stay in force", "file", f.path, "err", err)
	}
}

// blocks returns the rule that blocks one of some expressions, or nil.
func (f *BlockFile) blocks(exprs []string) *Rule {
	if f == nil {
		return nil
	}
	return blockingRule(f.loaded.Load().rules, exprs)
}

// State is what is listed of a BlockFile.
type State struct {
	File  string `json:"file"`
	Rules []Rule `json:"rules"`
	// Error says why the rules are not those that the file has now. It is empty if they are.
	Error string `json:"error,omitempty"`
}

// State returns the rules in force, or nil if there is no file.
func (f *BlockFile) State() *State {
	if f == nil {
		return nil
	}
	now := f.loaded.Load()
	s := &State{File: f.path, Rules: append([]Rule{}, now.rules...)} // not null
	if now.err != nil {
		s.Error = now.err.Error()
	}
	return s
}
