package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/scope"
)

// Status is what does not change about an adapter while it runs, for
// /api/v1/status/adapter.
type Status struct {
	// Version is that of the adapter.
	Version string
	// Backend is the name of the backend, and Location where it keeps its rows: a
	// directory, or a project and an instance.
	Backend, Location string
	// Format is the version of the format of the tables, and DirectoryFormat that of the directory
	// of an embedded store, or empty.
	Format          int
	DirectoryFormat string
	// ResourceLabels are those of the schema.
	ResourceLabels []string
	// Tables are those of the store, with the ages to which they keep cells, and Wanted those
	// with the ages of the flags, or nil.
	Tables, Wanted []bucketstore.TableSpec
	// TablePrefix stands in front of their names.
	TablePrefix string
	// SelfScrape says as what the adapter stores its own metrics.
	SelfScrape SelfScrape
	// FailingRows returns the rows that the store does not take, of the tenants of a context. It may be nil.
	FailingRows func(ctx context.Context) []bucketstore.FailingRow
}

// SelfScrape says as what an adapter stores its own metrics, and how often: never if IntervalSeconds is 0.
type SelfScrape struct {
	Job             string  `json:"job"`
	Instance        string  `json:"instance"`
	IntervalSeconds float64 `json:"intervalSeconds"`
}

type statusAnswer struct {
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	// RawFrom is the time before which samples are gone, and only rollups are kept.
	RawFrom  time.Time `json:"rawFrom"`
	Backend  string    `json:"backend"`
	Location string    `json:"location"`
	Format   int       `json:"format"`
	// DirectoryFormat is what the file FORMAT of the directory says, if there is one.
	DirectoryFormat string   `json:"directoryFormat,omitempty"`
	ResourceLabels  []string `json:"resourceLabels"`
	// SelfScrape is that of Status.
	SelfScrape SelfScrape `json:"selfScrape"`
	Tables     []table    `json:"tables"`
	// Metrics are the counters and gauges of the adapter, by name and labels, as in
	// the text format; of a histogram or summary it is the count.
	Metrics map[string]float64 `json:"metrics"`
	// FailingRows are up to maxFailingRows rows that the store does not take.
	FailingRows []failingRow `json:"failingRows"`
	// AdminAPI says that requests are served that change what is stored, or cancel a query.
	AdminAPI bool `json:"adminAPI"`
	// BlockedQueries are the rules by which queries are blocked. It is nil if no file has any.
	BlockedQueries *queries.State `json:"blockedQueries,omitempty"`
}

// maxFailingRows bounds the answer. A metric counts all of them.
const maxFailingRows = 100

type failingRow struct {
	Table   string    `json:"table"`
	Key     string    `json:"key"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error"`
	Refused bool      `json:"refused"`
}

// failingRows describes the rows that the store does not take.
func (s *Status) failingRows(ctx context.Context) []failingRow {
	described := []failingRow{}
	if s.FailingRows == nil {
		return described
	}
	for _, row := range s.FailingRows(ctx) {
		if len(described) == maxFailingRows {
			break
		}
		text := ""
		if row.Err != nil {
			text = row.Err.Error()
		}
		described = append(described, failingRow{row.Table.String(), string(row.Key), row.Since, text, row.Refused})
	}
	return described
}

type table struct {
	Name     string   `json:"name"`
	Families []family `json:"families"`
}

type family struct {
	Name string `json:"name"`
	// MaxAgeSeconds is how old a cell may grow, 0 for ever.
	MaxAgeSeconds float64 `json:"maxAgeSeconds"`
	// WantedMaxAgeSeconds is the age of the flags, if Bigtable has another one.
	WantedMaxAgeSeconds *float64 `json:"wantedMaxAgeSeconds,omitempty"`
}

// drift returns the wanted age of a family in seconds, if it is another than that of f.
func (s *Status) drift(table bucketstore.Table, f bucketstore.FamilySpec) *float64 {
	for _, spec := range s.Wanted {
		for _, wanted := range spec.Families {
			if spec.Table == table && wanted.Name == f.Name && wanted.MaxAge != f.MaxAge {
				seconds := wanted.MaxAge.Seconds()
				return &seconds
			}
		}
	}
	return nil
}

// serveStatus answers /api/v1/status/adapter: what the adapter is and does. Two
// answers give the rates.
func (a *API) serveStatus(w http.ResponseWriter, r *http.Request) {
	s := a.cfg.Status
	answer := statusAnswer{
		Version: s.Version, Started: a.started, Now: a.cfg.Now(),
		Backend: s.Backend, Location: s.Location,
		Format: s.Format, DirectoryFormat: s.DirectoryFormat, ResourceLabels: append([]string{}, s.ResourceLabels...), // not null
		SelfScrape: s.SelfScrape, Tables: []table{},
		Metrics: map[string]float64{}, FailingRows: s.failingRows(r.Context()), AdminAPI: a.cfg.Admin != nil, BlockedQueries: a.cfg.Active.Blocked().State(),
	}
	answer.RawFrom = time.UnixMilli(0).UTC()
	if a.cfg.Cut != nil {
		answer.RawFrom = time.UnixMilli(a.cfg.Cut(answer.Now)).UTC()
	}
	for _, spec := range s.Tables {
		t := table{Name: s.TablePrefix + spec.Table.String()}
		for _, f := range spec.Families {
			t.Families = append(t.Families, family{f.Name, f.MaxAge.Seconds(), s.drift(spec.Table, f)})
		}
		answer.Tables = append(answer.Tables, t)
	}
	if a.cfg.Gatherer == nil {
		respond(w, answer, nil)
		return
	}
	families, err := a.cfg.Gatherer.Gather()
	if err != nil {
		respond(w, nil, fmt.Errorf("gather metrics: %w", err))
		return
	}
	for _, f := range families {
		if name := f.GetName(); strings.HasPrefix(name, "adapter_") || strings.HasPrefix(name, "process_") {
			for _, m := range f.GetMetric() {
				if isOfAnother(m, scope.Of(r.Context())) {
					continue
				}
				answer.Metrics[name+labelText(m)] = number(m)
			}
		}
	}
	respond(w, answer, nil)
}

// isOfAnother says that a metric is of a tenant that does not ask.
func isOfAnother(m *dto.Metric, tenants string) bool {
	return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "tenant" && l.GetValue() != tenants })
}

// number returns the value of m. What JSON has no number for is 0.
func number(m *dto.Metric) float64 {
	v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() +
		float64(m.GetHistogram().GetSampleCount()) + float64(m.GetSummary().GetSampleCount())
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// labelText writes the labels of m, if it has any.
func labelText(m *dto.Metric) string {
	if len(m.GetLabel()) == 0 {
		return ""
	}
	pairs := make([]string, len(m.GetLabel()))
	for i, l := range m.GetLabel() {
		pairs[i] = fmt.Sprintf("%s=%q", l.GetName(), l.GetValue())
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
