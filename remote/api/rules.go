package api

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
)

// NoRules are those of an adapter that evaluates none.
type NoRules struct{}

// RuleGroups implements v1.RulesRetriever.
func (NoRules) RuleGroups() []*rules.Group { return nil }

// AlertingRules implements v1.RulesRetriever.
func (NoRules) AlertingRules() []*rules.AlertingRule { return nil }

// nothing is what upstream's API asks for targets and Alertmanagers, of which the adapter has none. Clients
// such as Grafana ask for them, and would show an error.
type nothing struct{}

func (nothing) ScrapePools() []string                       { return []string{} }
func (nothing) TargetsActive() map[string][]*scrape.Target  { return nil }
func (nothing) TargetsDropped() map[string][]*scrape.Target { return nil }
func (nothing) TargetsDroppedCounts() map[string]int        { return map[string]int{} }
func (nothing) Alertmanagers() []*url.URL                   { return nil }
func (nothing) DroppedAlertmanagers() []*url.URL            { return nil }

func (nothing) ScrapePoolConfig(pool string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("no scrape pool %q", pool)
}

// serveWALReplay answers /api/v1/status/walreplay as a Prometheus that has nothing left to replay: there is no API before the log is
// replayed.
func (a *API) serveWALReplay(w http.ResponseWriter, _ *http.Request) {
	respond(w, map[string]int{"min": 0, "max": 0, "current": 0}, nil)
}
