package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// A year asks for a long time of the series of one metric, from rollups and from samples.
type year struct {
	history
	step     time.Duration
	readTime time.Duration
	raw      bool
}

// runYear is the command year.
func runYear(ctx context.Context, args []string) error {
	y := &year{}
	app := kingpin.New("bench year", "Writes a long time of the series of one metric to an embedded store, lets the adapter make rollups, and prints what these cost, and what a query of all of it does from rollups and from samples.")
	app.Flag("metric", "Their metric, a counter.").Default("node_cpu_seconds_total").StringVar(&y.workload.Metric)
	y.addFlags(app)
	app.Flag("step", "Step of the query.").Default("6h").DurationVar(&y.step)
	app.Flag("raw", "Ask for samples, too.").Default("true").BoolVar(&y.raw)
	app.Flag("read-time", "How long each query is repeated, at least five times but from samples, which is once.").Default("2s").DurationVar(&y.readTime)
	if _, err := app.Parse(args); err != nil {
		return err
	}
	return y.run(ctx, append([]string{"year"}, args...), y.ask)
}

// ask asks for all of the time.
func (y *year) ask(ctx context.Context, s *server) error {
	end := y.workload.End / 3_600_000 * 3_600_000
	hour := rangeQuery{fmt.Sprintf("sum by (job) (rate(%s[1h]))", y.workload.Metric), end - int64(y.days-1)*day, end, y.step}
	grafana, odd := hour, hour
	grafana.text = strings.Replace(hour.text, "1h", model.Duration(y.step+15*time.Second).String(), 1)
	odd.start, odd.end = hour.start-1_234_000, hour.end-1_234_000
	for _, q := range []struct {
		name string
		rangeQuery
		params string
	}{
		{"on the hour", hour, ""}, {"on the hour, from 5m", hour, "&max_source_resolution=5m"}, {"on the hour, from samples", hour, "&max_source_resolution=0s"},
		{"as Grafana asks", grafana, ""}, {"as Grafana asks, from samples", grafana, "&max_source_resolution=0s"},
		{"at an odd second", odd, ""}, {"at an odd second, from samples", odd, "&max_source_resolution=0s"},
	} {
		isRaw := strings.HasSuffix(q.params, "0s")
		if isRaw && !y.raw {
			continue
		}
		progress("asking %s", q.name)
		if err := y.askOne(ctx, s, q.name, q.rangeQuery, q.params, isRaw); err != nil {
			return err
		}
	}
	return nil
}

// askOne notes what an answer costs.
func (y *year) askOne(ctx context.Context, s *server, name string, q rangeQuery, params string, once bool) error {
	if err := settle(ctx, s.PID(), time.Minute); err != nil {
		return err
	}
	client := newClient(1)
	defer client.CloseIdleConnections()
	idle, err := resetPeak(s.PID())
	if err != nil {
		return err
	}
	before, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	var took []time.Duration
	var buf bytes.Buffer
	for began := time.Now(); len(took) == 0 || !once && (len(took) < 5 || time.Since(began) < y.readTime); {
		req, err := rangeRequest(ctx, s.url, q)
		if err != nil {
			return err
		}
		req.URL.RawQuery += params + "&stats=all"
		sent := time.Now()
		if err := fetch(client, req, &buf); err != nil {
			return err
		}
		took = append(took, time.Since(sent))
	}
	after, err := usageOf(s.PID())
	if err != nil {
		return err
	}
	d, err := countMatrix(buf.Bytes())
	if err != nil {
		return err
	}
	if d.Samples == 0 {
		return fmt.Errorf("%s: the answer is empty", name)
	}
	y.add(name+": values", fmt.Sprint(d.Samples))
	y.add(name+": CPU s", digits((after.cpu-before.cpu).Seconds()/float64(len(took))))
	slices.Sort(took)
	y.add(name+": p50, ms", digits(milliseconds(quantile(took, 0.5))))
	y.add(name+": peak RSS over idle, MB", megabytes(after.peak-idle))
	read, err := bytesRead(buf.Bytes())
	y.add(name+": bytes of cells read, MB", megabytes(read))
	return err
}
