package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// panels asks for the usual panels of dashboards, from rollups and from samples.
type panels struct {
	history
	readTime time.Duration
	raw      bool
}

// runPanels is the command panels.
func runPanels(ctx context.Context, args []string) error {
	p := &panels{}
	app := kingpin.New("bench panels", "Writes a long time of hosts to an embedded store, lets the adapter make rollups, asks for the usual panels of Grafana's dashboards, and prints what each is read from, what it costs, and how its values differ from those of samples.")
	p.addFlags(app)
	app.Flag("raw", "Ask for samples, too, and compare.").Default("true").BoolVar(&p.raw)
	app.Flag("read-time", "How long each panel is repeated, at least once.").Default("500ms").DurationVar(&p.readTime)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	return p.run(ctx, append([]string{"panels"}, args...), p.ask)
}

// ask asks for all panels of each range of time that the history has.
func (p *panels) ask(ctx context.Context, s *server) error {
	for _, z := range zooms {
		if z.span > time.Duration(p.days)*24*time.Hour {
			continue
		}
		fmt.Println(p.table)
		p.table = table{{
			fmt.Sprintf("%s, a step each %v", z.name, z.interval), "series", "values", "read from", "CPU ms", "MB of cells", "CPU ms from samples", "ratio", "greatest difference",
		}}
		for _, panel := range catalog {
			if err := p.askOne(ctx, s, z, panel); err != nil {
				return fmt.Errorf("%s of %s: %w", z.query(panel), z.name, err)
			}
		}
	}
	return nil
}

// askOne adds the row of a panel.
func (p *panels) askOne(ctx context.Context, s *server, z zoom, of panel) error {
	step := z.interval.Milliseconds()
	end := p.workload.End / step * step
	q := rangeQuery{z.query(of), end - z.span.Milliseconds(), end, z.interval}
	if of.isStat {
		q.start = end
	}
	found, err := p.cost(ctx, s, q, "", p.readTime)
	if err != nil {
		return err
	}
	row := []string{
		fmt.Sprintf("%s: `%s`", of.of, q.text), fmt.Sprint(found.stats.Series), fmt.Sprint(len(found.values)), found.source, digits(found.cpuMs), digits(float64(found.stats.Bytes) / 1e6),
	}
	if p.raw {
		samples, err := p.cost(ctx, s, q, "&max_source_resolution=0s", p.readTime)
		if err != nil {
			return err
		}
		row = append(row, digits(samples.cpuMs), digits(found.cpuMs/max(samples.cpuMs, math.SmallestNonzeroFloat64)), difference(found.values, samples.values))
	}
	p.add(row...)
	return nil
}

// A panelAnswer is what a panel shows and costs.
type panelAnswer struct {
	source string // as the header has it
	stats  struct{ Series, Bytes int64 }
	cpuMs  float64
	values map[string]string // by series and time
}

// cost asks for a panel again and again.
func (p *panels) cost(ctx context.Context, s *server, q rangeQuery, params string, atLeast time.Duration) (a panelAnswer, err error) {
	before, err := usageOf(s.PID())
	if err != nil {
		return a, err
	}
	client := newClient(1)
	defer client.CloseIdleConnections()
	var body bytes.Buffer
	times := 0
	for began := time.Now(); times == 0 || time.Since(began) < atLeast; times++ {
		req, err := rangeRequest(ctx, s.url, q)
		if err != nil {
			return a, err
		}
		req.URL.RawQuery += params + "&stats=all"
		if a.source, err = fetchFrom(client, req, &body); err != nil {
			return a, err
		}
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return a, err
	}
	a.cpuMs = milliseconds(after.cpu-before.cpu) / float64(times)
	return a, a.read(body.Bytes())
}

// fetchFrom is fetch, and returns what the adapter says that it has read.
func fetchFrom(client *http.Client, req *http.Request, buf *bytes.Buffer) (source string, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	buf.Reset()
	if _, err = buf.ReadFrom(resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, buf)
	}
	return resp.Header.Get("X-Promtable-Resolution"), err
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
