package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promtable/promtable/e2e/harness"
)

// panels asks for the usual panels of dashboards: the adapter, from rollups and from samples, and its peers.
type panels struct {
	history
	readTime time.Duration
	rounds   int
	raw      bool
	peers    []string
	askers   []asker // the adapter first
}

// An asker asks one server.
type asker struct {
	*server
	title  string
	params string // of the adapter, beside the query
	isPeer bool   // may refuse
	// calculates says that equal queries have to have equal values.
	calculates bool
	client     *http.Client
}

// runPanels is the command panels.
func runPanels(ctx context.Context, args []string) error {
	p := &panels{}
	var peers string
	app := kingpin.New("bench panels", "Writes a long time of hosts to an embedded store, lets the adapter make rollups, gives the same samples to Prometheus and VictoriaMetrics, asks all of them in turns for the usual panels of Grafana's dashboards, and prints what each costs, what the adapter reads it from, and how the values differ.")
	p.addFlags(app)
	app.Flag("raw", "Ask for samples, too, and compare.").Default("true").BoolVar(&p.raw)
	app.Flag("peers", "Servers beside the adapter: prometheus, victoriametrics. Empty is none.").Default(prometheusName + "," + victoriaName).StringVar(&peers)
	app.Flag("rounds", "How often each server answers a panel, at least, after a first time that does not count.").Default("3").IntVar(&p.rounds)
	app.Flag("read-time", "How long each panel is repeated, at least.").Default("2s").DurationVar(&p.readTime)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	if p.rounds < 1 {
		return fmt.Errorf("--rounds=%d is less than 1", p.rounds)
	}
	if peers != "" {
		var err error
		if p.peers, err = pick(peers, []string{prometheusName, victoriaName}, func(s string) string { return s }); err != nil {
			return fmt.Errorf("--peers: %w", err)
		}
	}
	return p.run(ctx, append([]string{"panels"}, args...), p.ask)
}

// ask asks for all panels of each range of time that the history has.
func (p *panels) ask(ctx context.Context, s *server) error {
	p.askers = []asker{{server: s, title: adapterName}}
	if p.raw {
		p.askers = append(p.askers, asker{server: s, title: "from samples", params: "&max_source_resolution=0s", calculates: true})
	}
	for _, name := range p.peers {
		peer, title, err := p.startPeer(ctx, name, s)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer peer.close()
		p.askers = append(p.askers, asker{server: peer, title: title, isPeer: true, calculates: name == prometheusName})
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	for i := range p.askers {
		p.askers[i].client = newClient(1)
		defer p.askers[i].client.CloseIdleConnections()
	}
	for _, z := range zooms {
		if z.span > time.Duration(p.days)*24*time.Hour {
			continue
		}
		fmt.Println(p.table)
		if err := p.askAll(ctx, z); err != nil {
			return err
		}
	}
	return nil
}

// askAll makes the table of a range of time. Its last row has medians of ratios.
func (p *panels) askAll(ctx context.Context, z zoom) error {
	p.table = table{p.heads(z)}
	ratios := make([][]float64, 2*len(p.askers))
	for _, panel := range catalog {
		answers, err := p.askOne(ctx, z, panel)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", z.query(panel), z.name, err)
		}
		for i, a := range answers {
			if a.failed == "" {
				ratios[i] = append(ratios[i], answers[0].cpu.Seconds()/a.cpu.Seconds())
				ratios[len(answers)+i] = append(ratios[len(answers)+i], answers[0].p50().Seconds()/a.p50().Seconds())
			}
		}
	}
	row := []string{"median of the ratios", "", ""}
	for i, list := range ratios {
		slices.Sort(list)
		text := ""
		if len(list) > 0 && i%len(p.askers) > 0 {
			text = digits(list[len(list)/2])
		}
		row = append(row, text)
	}
	p.add(append(row, "")...)
	return nil
}

// heads are the heads of the columns.
func (p *panels) heads(z zoom) []string {
	list := []string{fmt.Sprintf("%s, a step each %v", z.name, z.interval), "series", "read from"}
	for _, what := range []string{"CPU ms", "p50, ms"} {
		for _, a := range p.askers {
			list = append(list, what+": "+a.title)
		}
	}
	return append(list, "values")
}

// askOne asks all servers for a panel, in rounds, and adds its row. Each round has a random order: a server that is
// asked twice in a row finds its data in the caches of the CPU.
func (p *panels) askOne(ctx context.Context, z zoom, of panel) ([]panelAnswer, error) {
	step := z.interval.Milliseconds()
	end := p.workload.End / step * step
	q := rangeQuery{z.query(of), end - z.span.Milliseconds(), end, z.interval}
	if of.isStat {
		q.start = end
	}
	answers := make([]panelAnswer, len(p.askers))
	began := time.Now()
	for round := 0; round <= p.rounds || time.Since(began) < p.readTime; round++ {
		for _, i := range rand.Perm(len(p.askers)) {
			if err := p.askers[i].ask(ctx, q, &answers[i], round == 0); err != nil {
				return nil, fmt.Errorf("%s: %w", p.askers[i].title, err)
			}
		}
	}
	first := answers[0]
	for i, a := range answers {
		if a.failed == "" && len(a.values) == 0 && len(first.values) > 0 {
			answers[i].failed = "empty"
		}
		if n := len(first.values); len(a.values) != n {
			progress("%s has %d values, the adapter %d", p.askers[i].title, len(a.values), n)
		}
	}
	row := []string{fmt.Sprintf("%s: `%s`", of.of, q.text), fmt.Sprint(first.stats.Series), first.source}
	for _, a := range answers {
		row = append(row, cmp.Or(a.failed, digits(milliseconds(a.cpu)/float64(max(1, len(a.took))))))
	}
	for _, a := range answers {
		row = append(row, cmp.Or(a.failed, digits(milliseconds(a.p50()))))
	}
	var differ []string
	for i, a := range p.askers {
		if !a.calculates || answers[i].failed != "" {
			continue
		}
		if d := difference(first.values, answers[i].values); d != "0" {
			differ = append(differ, a.title+": "+d)
		}
	}
	p.add(append(row, cmp.Or(strings.Join(differ, "; "), "equal"))...)
	return answers, nil
}

// A panelAnswer is what a panel shows and costs.
type panelAnswer struct {
	failed string // why there is none, in a word
	source string // as the header has it
	stats  struct{ Series, Bytes int64 }
	values map[string]string // by series and time
	cpu    time.Duration     // of all that count
	took   []time.Duration   // of each that counts
}

// p50 is the median of how long an answer took. It is 0 if there is none.
func (a *panelAnswer) p50() time.Duration {
	if len(a.took) == 0 {
		return 0
	}
	slices.Sort(a.took)
	return quantile(a.took, 0.5)
}

// ask asks for a panel. The first time is for the values, and does not count: it reads files. A peer that does not answer is
// not asked again.
func (a asker) ask(ctx context.Context, q rangeQuery, answer *panelAnswer, first bool) error {
	if answer.failed != "" {
		return nil
	}
	req, err := rangeRequest(ctx, a.url, q)
	if err != nil {
		return err
	}
	req.URL.RawQuery += a.params + "&stats=all"
	before, err := cpuOf(a.PID())
	if err != nil {
		return err
	}
	began := time.Now()
	body, source, err := fetchFrom(a.client, req)
	took := time.Since(began)
	switch {
	case err != nil && a.isPeer && ctx.Err() == nil:
		progress("%s: %v", a.title, err)
		answer.failed = "failed"
		if _, ok := errors.AsType[harness.StatusError](err); ok {
			answer.failed = "refused"
		}
		return nil
	case err != nil:
		return err
	}
	after, err := cpuOf(a.PID())
	if err != nil {
		return err
	}
	if first {
		answer.source = source
		return answer.read(body)
	}
	answer.cpu += after - before
	answer.took = append(answer.took, took)
	return nil
}

// fetchFrom returns an answer, and what the adapter says that it has read.
func fetchFrom(client *http.Client, req *http.Request) (body []byte, source string, err error) {
	resp, err := harness.Do(client, req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return body, resp.Header.Get("X-Promtable-Resolution"), err
}

// read reads a body.
func (a *panelAnswer) read(body []byte) error {
	var answer struct {
		Data struct {
			Result []struct {
				Metric json.RawMessage
				Values [][2]json.RawMessage
			}
			Stats struct {
				Storage struct{ Series, Bytes int64 }
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	a.stats, a.values = answer.Data.Stats.Storage, make(map[string]string)
	for _, one := range answer.Data.Result {
		for _, v := range one.Values {
			a.values[string(one.Metric)+" "+string(v[0])] = strings.Trim(string(v[1]), `"`)
		}
	}
	return nil
}

// difference says by how much the values of two answers differ at most, relative to the value. It is 0 if they have the same bits.
func difference(a, b map[string]string) string {
	missing, most := 0, 0.0
	for at, text := range b {
		other, ok := a[at]
		switch x, y := number(text), number(other); {
		case !ok:
			missing++
		case text != other:
			most = max(most, math.Abs(x-y)/max(math.Abs(x), math.SmallestNonzeroFloat64))
		}
	}
	switch more := len(a) + missing - len(b); {
	case missing+more > 0:
		return fmt.Sprintf("%d missing, %d more", missing, more)
	case most == 0:
		return "0"
	}
	return strconv.FormatFloat(most, 'g', 2, 64)
}

// number reads a value. What is none is NaN.
func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}
