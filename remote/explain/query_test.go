package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/engine/resultcache"
	"github.com/promtable/promtable/remote/remotetest"
)

// queries explains every expression as a sum of two selectors.
type queries struct {
	err        error
	start, end time.Time
	step       time.Duration
	// buckets are what the selectors ask for.
	buckets *eval.Buckets
}

func (q *queries) Explain(_ context.Context, expr string, start, end time.Time, step time.Duration) (*eval.Node, error) {
	q.start, q.end, q.step = start, end, step
	selector := func(name string) *eval.Node {
		ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", name)}
		return &eval.Node{Text: name, Kind: "selector", Type: "instant vector", Streamed: "selector", Read: &eval.Read{Matchers: ms, Mint: 1, Maxt: 2, Buckets: q.buckets}}
	}
	return &eval.Node{Text: expr, Kind: "operator", Type: "instant vector", Reason: "because", Children: []*eval.Node{selector("a"), selector("b")}}, q.err
}

func (q *queries) Coverage(ctx context.Context, expr string, _, _ time.Time, step time.Duration) resultcache.Coverage {
	if step == 0 {
		return resultcache.Coverage{Why: "because"}
	}
	e := resultcache.New(1, nil).Engine(resultcache.Config{Options: promql.EngineOpts{Parser: parser.NewParser(parser.Options{})}, Now: time.Now})
	if why := e.Coverage(ctx, expr, time.UnixMilli(0), time.UnixMilli(2), time.Millisecond).Why; why != "" { // ctx may ask for no cached results
		return resultcache.Coverage{Why: why}
	}
	return resultcache.Coverage{Steps: 3, Closed: 2, Cached: 1}
}

// TestExplainCache: an explanation says what of a query is cached, or why nothing is.
func TestExplainCache(t *testing.T) {
	for params, want := range map[string]string{
		"query=a":                       `"cache":{"eligible":false,"reason":"because","steps":0,"steps_closed":0,"steps_cached":0}`,
		"query=a&start=0&end=60&step=1": `"cache":{"eligible":true,"steps":3,"steps_closed":2,"steps_cached":1}`,
		"query=a&start=0&end=60&step=1&max_source_resolution=auto": `"cache":{"eligible":true,`,
		"query=a&start=0&end=60&step=1&limit=1000":                 `"cache":{"eligible":true,`,
		"query=a&start=0&end=60&step=1&max_source_resolution=0s":   `"cache":{"eligible":false,"reason":"it is asked for without cached results, `,
	} {
		base, _ := remotetest.Serve(t, &remotetest.Engine{}, func(c *remote.Config) { c.Queries = &queries{} })
		got := remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?"+params, nil, nil)
		got.WantStatus(t, http.StatusOK)
		if !strings.Contains(got.Body, want) {
			t.Errorf("%s: the answer %s has no %s", params, got.Body, want)
		}
	}
}

// TestExplainQuery: the parameters of a query go to the engine of queries, and a wrong one is
// a 400 that names it.
func TestExplainQuery(t *testing.T) {
	const now = 1_700_000_000_000
	tests := []struct {
		params     string
		err        error
		start, end int64
		step       time.Duration
		status     int
		text       string
	}{
		{params: "query=a", start: now, end: now},
		{params: "query=a&time=1.5", start: 1500, end: 1500},
		{params: "query=a&step=30", start: now - 3_600_000, end: now, step: 30 * time.Second},
		{params: "query=a&start=0&end=7200&step=1m", start: 0, end: 7_200_000, step: time.Minute},
		{params: "query=a&start=0&end=60", status: 400, text: `parameter "step"`},
		{params: "query=a&start=0&end=60&step=-1", status: 400, text: `parameter "step"`},
		{params: "query=a&start=0&end=60&step=NaN", status: 400, text: `parameter "step"`},
		{params: "query=a&start=0&end=60&step=1e-9", status: 400, text: `parameter "step"`},
		{params: "query=a&start=x&step=1", status: 400, text: `parameter "start"`},
		{params: "query=a&start=2&end=1&step=1", status: 400, text: `parameter "end"`},
		{params: "query=a&time=x", status: 400, text: `parameter "time"`},
		{params: "query=a&time=1&step=1", status: 400, text: `parameter "time"`},
		{params: "query=a&start=0&end=11001&step=1", status: 400, text: "maximum resolution"},
		{params: "query=a&match[]=b", status: 400, text: "either query or match[]"},
		{params: "query=a&reads=maybe", status: 400, text: `parameter "reads"`},
		{params: "query=a&max_source_resolution=raw", status: 400, text: `parameter "max_source_resolution"`},
		{params: "query=a", err: errors.New("no expression"), status: 400, text: `parameter "query": no expression`},
	}
	for _, tt := range tests {
		t.Run(tt.params, func(t *testing.T) {
			q := &queries{err: tt.err}
			base, _ := remotetest.Serve(t, &remotetest.Engine{}, func(cfg *remote.Config) {
				cfg.Now, cfg.Queries = func() time.Time { return time.UnixMilli(now) }, q
			})
			got := remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?"+tt.params, nil, nil)
			if tt.status != 0 {
				got.WantStatus(t, tt.status)
				if !strings.Contains(got.Body, strings.ReplaceAll(tt.text, `"`, `\"`)) {
					t.Errorf("answer %s", got.Body)
				}
				return
			}
			got.WantStatus(t, http.StatusOK)
			if q.start.UnixMilli() != tt.start || q.end.UnixMilli() != tt.end || q.step != tt.step {
				t.Errorf("explained from %d to %d, step %s", q.start.UnixMilli(), q.end.UnixMilli(), q.step)
			}
		})
	}
}

// TestExplainParts: the parts of a selector have the times at which it is evaluated, and with reads=false no rows are read.
func TestExplainParts(t *testing.T) {
	shifted := &eval.Buckets{Shift: 500}
	shifted.Windows.Count = 2
	fixed := &eval.Buckets{Shift: 500}
	fixed.Windows.Count = 1
	for _, tt := range []struct {
		params   string
		buckets  *eval.Buckets
		from, to int64
		rows     int64
	}{
		{"", shifted, 1500, 2500, 3},
		{"&reads=true", fixed, 0, 60_000, 3},
		{"&reads=false", shifted, 1500, 2500, 0},
	} {
		t.Run(tt.params, func(t *testing.T) {
			eng := &remotetest.Engine{
				Read:  reader.Counts{Series: 1, Rows: 3},
				Parts: []reader.ExplainedPart{{From: 1000, To: 2000, Read: []string{"raw", "1h"}}},
			}
			base, _ := remotetest.Serve(t, eng, func(c *remote.Config) { c.Queries = &queries{buckets: tt.buckets} })
			got := remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?query=a&start=0&end=60&step=1"+tt.params, nil, nil)
			got.WantStatus(t, http.StatusOK)
			var answer struct {
				Data struct {
					Tree struct {
						Children []struct {
							Read struct {
								Series, Rows int64
								Parts        []reader.ExplainedPart
							}
						}
					}
				}
			}
			if err := json.Unmarshal([]byte(got.Body), &answer); err != nil {
				t.Fatal(err)
			}
			read := answer.Data.Tree.Children[0].Read
			if read.Series != 1 || read.Rows != tt.rows || len(read.Parts) != 1 || read.Parts[0].From != tt.from || read.Parts[0].To != tt.to || len(read.Parts[0].Read) != 2 {
				t.Errorf("answer %s", got.Body)
			}
		})
	}
}

// TestExplainQueryAnswer: the tree has what each selector reads, and the sum of it.
func TestExplainQueryAnswer(t *testing.T) {
	type total struct {
		Series, Rows, Cells, Bytes int64
		IndexRows                  int64    `json:"index_rows"`
		NodeSeconds                *float64 `json:"node_seconds"`
	}
	type node struct {
		Expr, Kind, Type, Streamed string
		NotStreamed                string `json:"not_streamed"`
		Read                       *struct {
			Selector   string
			Mint, Maxt int64
			total
		}
		Children []node
	}
	nodeSeconds := func(rows, indexRows, bytes int64) float64 { return float64(rows + 10*indexRows + 100*bytes) }
	for name, change := range map[string]func(*remote.Config){
		"with node-seconds":    func(cfg *remote.Config) { cfg.NodeSeconds = nodeSeconds },
		"without":              func(*remote.Config) {},
		"too many selectors":   func(cfg *remote.Config) { cfg.MaxQueries = 1 },
		"no engine of queries": func(cfg *remote.Config) { cfg.Queries = nil },
	} {
		t.Run(name, func(t *testing.T) {
			eng := &remotetest.Engine{Read: reader.Counts{Series: 1, IndexRows: 2, Rows: 3, Cells: 4, Bytes: 5}}
			var cfg remote.Config
			base, _ := remotetest.Serve(t, eng, func(c *remote.Config) {
				c.Queries = &queries{}
				change(c)
				cfg = *c
			})
			got := remotetest.Send(t, http.MethodGet, base+"/api/v1/explain?"+url.Values{"query": {"a + b"}}.Encode(), nil, nil)
			if cfg.MaxQueries == 1 || cfg.Queries == nil {
				got.WantStatus(t, http.StatusBadRequest)
				return
			}
			got.WantStatus(t, http.StatusOK)
			var answer struct {
				Data struct {
					Query string
					Total total
					Tree  node
				}
			}
			if err := json.Unmarshal([]byte(got.Body), &answer); err != nil {
				t.Fatal(err)
			}
			all, tree := answer.Data.Total, answer.Data.Tree
			if all.Series != 2 || all.IndexRows != 4 || all.Rows != 6 || all.Cells != 8 || all.Bytes != 10 {
				t.Errorf("total %+v", all)
			}
			if tree.Expr != "a + b" || tree.NotStreamed != "because" || len(tree.Children) != 2 {
				t.Fatalf("tree %+v", tree)
			}
			for _, x := range tree.Children {
				if x.Streamed != "selector" || x.Read == nil || x.Read.Mint != 1 || x.Read.Maxt != 2 || x.Read.Rows != 3 {
					t.Errorf("selector %+v", x)
				}
			}
			if (all.NodeSeconds != nil) != (cfg.NodeSeconds != nil) || all.NodeSeconds != nil && *all.NodeSeconds != 6+40+1000 {
				t.Errorf("node-seconds %v", all.NodeSeconds)
			}
		})
	}
}
