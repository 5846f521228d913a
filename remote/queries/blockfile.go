package queries

import (
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/bucketstore/metricset"
	"github.com/promtable/promtable/remote/reload"
)

// A BlockFile has the rules of a file. A nil one has none. It is safe for concurrent use.
type BlockFile struct{ *reload.File[[]Rule] }

// OpenBlockFile reads a file of rules.
func OpenBlockFile(path string, logger log.Logger, reg prometheus.Registerer) (*BlockFile, error) {
	good := metricset.New(reg).Gauge("adapter_query_block_file_last_reload_successful",
		"1 if the rules in force are those that --query.block-file has now, 0 if it could not be read again.")
	f, err := reload.Open(reload.Config[[]Rule]{Path: path, Parse: parseFile, Logger: logger, Good: good})
	if err != nil {
		return nil, err
	}
	return &BlockFile{f}, nil
}

// blocks returns the rule that blocks one of some expressions, or nil.
func (f *BlockFile) blocks(exprs []string) *Rule {
	if f == nil {
		return nil
	}
	rules, _ := f.Value()
	return blockingRule(rules, exprs)
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
	rules, err := f.Value()
	s := &State{File: f.Path(), Rules: append([]Rule{}, rules...)} // not null
	if err != nil {
		s.Error = err.Error()
	}
	return s
}
