// Package ui is the adapter's page for people: static files that ask the HTTP
// API. They are embedded, load nothing from elsewhere, and need no build step:
// what the browser runs is what is in the directory static. One file there is
// made of packages of npm, by the sources in the directory editor: go generate
// makes it again after a change of those, or of the versions in package-lock.json.
//
//	index.html     the frame: navigation and one section for each tab; New adds a link to each module
//	style.css      both colour schemes, the frame, forms and messages; the styles of a view stand beside its module, by its name
//	app.js         tabs, the state in the URL, errors
//	common/api     requests
//	common/dom     elements; common/templates parts of forms
//	common/table   tables, in pages; common/virtualtable tables of very many rows; common/rows sorts, searches and copies the rows of both
//	common/keys    the keys of the page, and the dialog that lists them
//	common/announce  sentences for screen readers
//	common/export  the clipboard and files
//	common/format  numbers, times and label sets as text; common/quantities sizes and durations
//	common/metrickinds  what a metric is, and the expressions that show it
//	common/...     small graphs, selectors, what prometheus.yml says
//	query/query    the tab Query: expressions, what they are asked, tables and graphs of the answers
//	query/graphview  its graph: graph (lines, areas, bars) or heatmap, on a plot with a cursor, in units; query/tableview its tables
//	query/timepicker its control of time; step and refresh are beside it
//	query/overlays  what lies over a graph, in layers, and is listed below it: exemplars, annotations
//	query/resolution  what of a graph comes from samples, and what from rollups
//	query/startpage  what the page shows before there is a query
//	boards/boards  the tab Boards; panels draws what is on one, variables are its choices, grafana makes boards of dashboards
//	tabs/...       the other tabs, a file each; tabs/findings and tabs/statuspanels are tables of what Status shows, tabs/activequeries its queries that run
//	vendor/...     the work of others, with its licences: uPlot 1.6.32, MIT, the charts;
//	               CodeMirror 6, MIT, with Prometheus' mode for PromQL, Apache-2.0, the editor
package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:generate sh -c "cd editor && npm ci --ignore-scripts && npm run build"

//go:embed static
var static embed.FS

// policy lets the page run its own scripts and ask its own server, and nothing
// else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Patterns returns what the page is served at, as patterns of http.ServeMux.
func Patterns() []string {
	return []string{"GET /{$}", "GET /ui/", "GET " + graphPath, "GET " + queryPath}
}

// Config is what the page is told.
type Config struct {
	// TraceURL is where exemplars lead: the URL of a trace, in which names of their labels stand in braces. If it is empty they lead nowhere. See CheckTraceURL.
	TraceURL string
}

// New returns the page at / and its files at /ui/, and leads links to Prometheus' page there.
func New(cfg Config) (http.Handler, error) {
	files, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	all, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	if all["index.html"], err = newFile("index.html", withHead(all, cfg)); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isFile := strings.CutPrefix(r.URL.Path, "/ui/")
		switch r.URL.Path {
		case graphPath, queryPath:
			// Relative, as the page may stand under another path of a proxy.
			w.Header().Set("Location", "./?"+fromPrometheus(r.URL.Query()).Encode())
			w.WriteHeader(http.StatusFound)
			return
		case "/":
			// Not redirected: the parameters of the page are its state.
			name, isFile = "index.html", true
		}
		f, ok := all[name]
		if !isFile || !ok {
			http.NotFound(w, r)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		// A new version is seen at once, the same one is not sent again.
		header.Set("Cache-Control", "no-cache")
		content, tag := f.content, f.tag
		if f.compressed != nil {
			header.Set("Vary", "Accept-Encoding")
			if acceptsGzip(r.Header) {
				content, tag = f.compressed, f.compressedTag
				header.Set("Content-Encoding", "gzip")
			}
		}
		header.Set("ETag", tag)
		header.Set("Content-Type", f.kind)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}), nil
}

// withHead returns index.html with what the page is told, and with a link to each module, so that the browser need not find one in the other.
func withHead(all map[string]file, cfg Config) []byte {
	var links strings.Builder
	if cfg.TraceURL != "" {
		fmt.Fprintf(&links, "<meta name=\"trace-url\" content=\"%s\">\n", html.EscapeString(cfg.TraceURL))
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if path.Ext(name) == ".js" && path.Dir(name) != "." && !strings.HasPrefix(name, "vendor/") {
			links.WriteString(`<link rel="modulepreload" href="ui/` + name + "\">\n")
		}
	}
	return bytes.Replace(all["index.html"].content, []byte("</head>"), []byte(links.String()+"</head>"), 1)
}
