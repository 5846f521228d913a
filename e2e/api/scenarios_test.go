package api

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtable/promtable/e2e/harness"
)

// The examples that Google gives for time series in Bigtable: metrics of servers, market
// data, energy meters. Their queries must read the rows that they need, and no others.

// Spans of the stored format, in milliseconds.
const (
	scenarioIndexPeriod = int64(1) << 29
	scenarioBase        = int64(1) << 32
)

// A scenario is an adapter and its series, sorted.
type scenario struct {
	*harness.Adapter
	backend string
	series  []harness.TimeSeries
}

// startScenario starts an adapter and sends it series, in requests of at most
// 5,000 samples.
func startScenario(t testing.TB, b harness.Backend, series []harness.TimeSeries) scenario {
	t.Helper()
	s := scenario{harness.StartAdapter(t, b), b.Name, series}
	const most = 5000
	var request []harness.SentSeries
	points := 0
	for _, ts := range series {
		if points+len(ts.Points) > most {
			harness.RemoteWrite2().MustSend(t, s.URL("/api/v1/write"), request...)
			request, points = nil, 0
		}
		request = append(request, harness.SeriesOf(ts.Labels, ts.Points...))
		points += len(ts.Points)
	}
	harness.RemoteWrite2().MustSend(t, s.URL("/api/v1/write"), request...)
	return s
}

// explain asks for the plan of a selector over [mint, maxt] and wants it to
// stay inside.
func (s scenario) explain(t testing.TB, selector string, mint, maxt int64) harness.Plan {
	t.Helper()
	data, err := harness.GetAPI(s.URL("/api/v1/explain"), url.Values{"match[]": {selector}, "start": {harness.FormatSeconds(mint)}, "end": {harness.FormatSeconds(maxt)}})
	var plans []harness.Plan
	if err == nil {
		err = json.Unmarshal(data, &plans)
	}
	if err != nil || len(plans) != 1 || len(plans[0].Rows) == 0 {
		t.Fatalf("explain %s: %s, %v", selector, data, err)
	}
	for _, r := range plans[0].Rows {
		if r.Table != "METRIC" || r.Start >= r.Limit || r.Mint < mint || r.Maxt > maxt || r.Mint > r.Maxt {
			t.Errorf("explain %s over [%d, %d]: range %v", selector, mint, maxt, r)
		}
	}
	return plans[0]
}

// read wants a selector over [mint, maxt] to find what was sent, which is so
// many series, and returns the plan.
func (s scenario) read(t testing.TB, selector string, mint, maxt int64, series int) harness.Plan {
	t.Helper()
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	q := harness.Query{Mint: mint, Maxt: maxt, Matchers: ms}
	want := q.SelectFrom(s.series)
	if len(want) != series {
		t.Fatalf("%s selects %d of the series that were sent, want %d", selector, len(want), series)
	}
	for _, as := range harness.AnswerTypes() {
		if d := harness.DiffSeries(harness.MustRead(t, s.URL("/api/v1/read"), as, q), want); d != "" {
			t.Errorf("%s, %v: %s", selector, as, d)
		}
	}
	p := s.explain(t, selector, mint, maxt)
	if p.Series != series {
		t.Errorf("explain %s: %d series, want %d", selector, p.Series, series)
	}
	return p
}

// Of the servers.
const (
	serverMetrics  = 100
	servers        = 200
	serverInterval = 5000
	serverSamples  = 24
)

// serverSeries returns the metrics of all servers for two minutes up to end, or
// up to the base of end: what is asked for lies in one base.
func serverSeries(end int64) []harness.TimeSeries {
	if turn := end &^ (scenarioBase - 1); end-turn < serverSamples*serverInterval {
		end = turn - 1
	}
	var all []harness.TimeSeries
	for m := range serverMetrics {
		for n := range servers {
			ts := harness.TimeSeries{Labels: labels.FromStrings("__name__", fmt.Sprintf("server_metric_%02d", m), "machine", fmt.Sprintf("m%03d", n))}
			for i := range int64(serverSamples) {
				ts.Points = append(ts.Points, harness.PointAt(end-(serverSamples-1-i)*serverInterval, float64(m*servers+n)+float64(i)/8))
			}
			all = append(all, ts)
		}
	}
	harness.SortSeries(all)
	return all
}

// TestScenarioServers reads the past of one machine, and the current samples of all.
func TestScenarioServers(t *testing.T) {
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			s := startScenario(t, b, serverSeries(harness.NowMillis()))
			first, last := s.series[0].Points[0].T, s.series[0].Points[serverSamples-1].T
			s.checkMachine(t, first, last, serverSamples)
			s.checkMachine(t, first+serverInterval, last-1, serverSamples-2)
			// What is in memory is gone then: the answer is in the table.
			s.Terminate(t)
			s.Rerun(t)
			s.checkInventory(t)
		})
	}
}

// checkMachine reads one machine over [mint, maxt], in which it has so many
// samples of each metric.
func (s scenario) checkMachine(t *testing.T, mint, maxt int64, samples int) {
	t.Helper()
	p := s.read(t, `{machine="m017"}`, mint, maxt, serverMetrics)
	for _, r := range p.Rows {
		if !strings.Contains(r.Start, ",machine=m017,") || !r.IsRow() {
			t.Errorf("one machine reads %v", r)
		}
	}
	if rows, cells := p.Counts(); rows != serverMetrics || cells > rows*samples {
		t.Errorf("one machine reads %d rows and %d cells, want %d rows of at most %d", rows, cells, serverMetrics, samples)
	}
}

// checkInventory reads the current samples of an adapter that has read nothing
// yet.
func (s scenario) checkInventory(t *testing.T) {
	t.Helper()
	current := s.currentSamples()
	before := s.reads(t)
	s.checkCurrent(t, current, inventory{limit: len(current)})
	after := s.reads(t)
	if after.batches != before.batches || after.metric != before.metric {
		t.Errorf("the current samples are read from METRIC: %+v, before %+v", after, before)
	}
	if s.backend == "emulator" && (after.current-before.current != 1 || after.currentRows-before.currentRows != float64(len(current))) {
		t.Errorf("the current samples take more than one scan of CURRENT: %+v, before %+v", after, before)
	}
	s.checkCurrent(t, current[:servers], inventory{limit: servers, truncated: true})
	machine := slices.DeleteFunc(slices.Clone(current), func(ts harness.TimeSeries) bool { return ts.Labels.Get("machine") != "m017" })
	s.checkCurrent(t, machine, inventory{limit: serverMetrics, selector: `{machine="m017"}`})
	if last := s.reads(t); last.batches != before.batches || last.metric != before.metric {
		t.Errorf("some current samples are read from METRIC: %+v, before %+v", last, before)
	}
	// The counters must be those that a scan of METRIC moves.
	ts := current[0]
	s.read(t, ts.Labels.String(), ts.Points[0].T, ts.Points[0].T, 1)
	if past := s.reads(t); past.batches <= after.batches || s.backend == "emulator" && past.metric <= after.metric {
		t.Errorf("after a read of METRIC: %+v, before %+v", past, after)
	}
}

// currentSamples returns the current sample of each series.
func (s scenario) currentSamples() (current []harness.TimeSeries) {
	for _, ts := range s.series {
		current = append(current, harness.TimeSeries{Labels: ts.Labels, Points: ts.Points[len(ts.Points)-1:]})
	}
	return current
}

// reads counts what an adapter has read. Only that of Bigtable counts tables.
type reads struct{ batches, metric, current, currentRows float64 }

func (s scenario) reads(t testing.TB) (r reads) {
	t.Helper()
	for _, result := range []string{"read", "split"} {
		r.batches += s.Metric(t, `adapter_engine_read_batches_total\{result="`+result+`"\}`)
	}
	if s.backend != "emulator" {
		return r
	}
	for _, result := range []string{"success", "failure"} {
		of := func(table string) float64 {
			return s.Metric(t, `adapter_bigtable_requests_total\{op="read",result="`+result+`",table="`+table+`"\}`)
		}
		r.metric, r.current = r.metric+of("METRIC"), r.current+of("CURRENT")
	}
	r.currentRows = s.Metric(t, `adapter_bigtable_rows_total\{table="CURRENT"\}`)
	return r
}

// An inventory asks for at most limit current samples, all or those that a
// selector finds, and says whether there are more.
type inventory struct {
	selector  string
	limit     int
	truncated bool
}

// checkCurrent reads current samples. It must not read more rows of CURRENT than there are
// series.
func (s scenario) checkCurrent(t testing.TB, want []harness.TimeSeries, ask inventory) {
	t.Helper()
	params := url.Values{"limit": {strconv.Itoa(ask.limit)}}
	if ask.selector != "" {
		params.Set("match[]", ask.selector)
	}
	data, err := harness.GetAPI(s.URL("/api/v1/current"), params)
	var answer struct {
		Samples []struct {
			Metric labels.Labels
			Value  json.RawMessage
		}
		RowsRead  int
		Truncated bool
	}
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	if err != nil {
		t.Fatalf("current: %v", err)
	}
	var got []harness.TimeSeries
	for _, sample := range answer.Samples {
		p, err := pointOfJSON(sample.Value)
		if err != nil {
			t.Fatalf("current: %s: %v", sample.Metric, err)
		}
		got = append(got, harness.TimeSeries{Labels: sample.Metric, Points: []harness.Point{p}})
	}
	harness.SortSeries(got)
	if d := harness.DiffSeries(got, want); d != "" || answer.Truncated != ask.truncated {
		t.Errorf("current samples of %+v, truncated: %t: %s", ask, answer.Truncated, d)
	}
	if answer.RowsRead < len(want) || answer.RowsRead > len(s.series) {
		t.Errorf("current samples of %+v: %d rows read for %d samples", ask, answer.RowsRead, len(want))
	}
}

// pointOfJSON decodes [seconds, "value"].
func pointOfJSON(data []byte) (harness.Point, error) {
	var seconds float64
	var text string
	if err := json.Unmarshal(data, &[]any{&seconds, &text}); err != nil {
		return harness.Point{}, fmt.Errorf("%s: %w", data, err)
	}
	v, err := strconv.ParseFloat(text, 64)
	return harness.PointAt(int64(math.Round(seconds*1000)), v), err
}

// marketStart is where the market opens, and a base begins.
const marketStart = 397 * scenarioBase

// marketSeries returns series of quotes and trades every four hours for three
// bases.
func marketSeries() []harness.TimeSeries {
	const interval = 4 * 3_600_000
	var all []harness.TimeSeries
	for i, name := range []string{"quote_price", "trade_price", "trade_size"} {
		for j, exchange := range []string{"lse", "nasdaq", "nyse"} {
			for k, symbol := range []string{"BRK.B", "GOOG", "GOOGL", "IBM"} {
				ts := harness.TimeSeries{Labels: labels.FromStrings("__name__", name, "exchange", exchange, "symbol", symbol)}
				for when := marketStart; when < marketStart+3*scenarioBase; when += interval {
					ts.Points = append(ts.Points, harness.PointAt(when, float64(100*i+10*j+k)+float64(when%1009)/1024))
				}
				all = append(all, ts)
			}
		}
	}
	harness.SortSeries(all)
	return all
}

// TestScenarioMarket asks for one instrument over the turns of index periods
// and of bases.
func TestScenarioMarket(t *testing.T) {
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			s := startScenario(t, b, marketSeries())
			s.checkInOneBase(t)
			s.checkOverBases(t)
		})
	}
}

const (
	goog    = `quote_price{exchange="nyse",symbol="GOOG"}`
	googKey = "quote_price,exchange=nyse,symbol=GOOG,"
)

// checkInOneBase reads one instrument over two index periods of a base: it is
// one row.
func (s scenario) checkInOneBase(t *testing.T) {
	t.Helper()
	turn := marketStart + 3*scenarioIndexPeriod
	const half = 12 * 3_600_000
	p := s.read(t, goog, turn-half, turn+half-1, 1)
	if rows, cells := p.Counts(); len(p.Rows) != 1 || !p.Rows[0].IsRow() || rows != 1 || cells > 7 {
		t.Errorf("a day reads %v", p.Rows)
	}
	mint, maxt := turn-scenarioIndexPeriod, turn+scenarioIndexPeriod-1
	p = s.read(t, goog, mint, maxt, 1)
	next := mint
	for _, r := range p.Rows { // slices of one row
		if r.Start != p.Rows[0].Start || !strings.HasPrefix(r.Start, googKey) || !r.IsRow() || r.Rows != 1 || r.Mint != next {
			t.Errorf("two index periods read %v, after %v", r, p.Rows[0])
		}
		next = r.Maxt + 1
	}
	if next != maxt+1 {
		t.Errorf("two index periods are read up to %d, want %d", next-1, maxt)
	}
}

// checkOverBases reads one instrument over bases: between its rows there is no other row,
// and dense bases are read as one range.
func (s scenario) checkOverBases(t *testing.T) {
	t.Helper()
	s.checkContiguous(t, s.read(t, goog, marketStart+scenarioBase/2, marketStart+3*scenarioBase/2, 1), 2)
	p := s.read(t, goog, marketStart, marketStart+3*scenarioBase-1, 1)
	s.checkContiguous(t, p, 3)
	last := p.Rows[len(p.Rows)-1]
	second, third := googRow(1), googRow(2)
	if last.Start != second || last.Limit != third+"\x00" || last.Rows != 2 {
		t.Errorf("two bases read %v, want the rows from %q to %q", last, second, third)
	}
}

// googRow returns the key of the instrument's row in a base.
func googRow(base int64) string {
	return fmt.Sprintf("%s%013d", googKey, marketStart+base*scenarioBase)
}

// checkContiguous wants p to read so many rows of the instrument, and no row of
// another one to lie in between.
func (s scenario) checkContiguous(t *testing.T, p harness.Plan, rows int) {
	t.Helper()
	start, limit := p.Keys()
	inside, outside := make(map[string]bool), make(map[string]bool)
	// One base after the other, so that each range is a row.
	for base := range int64(3) {
		mint := marketStart + base*scenarioBase
		for _, r := range s.explain(t, `{exchange=~".+"}`, mint, mint+3_600_000).Rows {
			if !r.IsRow() {
				t.Fatalf("an hour reads %v", r)
			}
			if r.Start >= start && r.Start < limit {
				inside[r.Start] = true
			} else {
				outside[r.Start] = true
			}
		}
	}
	for key := range inside {
		if !strings.HasPrefix(key, googKey) {
			t.Errorf("between the rows of the instrument lies %q", key)
		}
	}
	if len(inside) != rows || len(inside)+len(outside) != 3*len(s.series) {
		t.Errorf("of %d rows %d lie in [%q, %q), want %d of %d", len(inside)+len(outside), len(inside), start, limit, rows, 3*len(s.series))
	}
}

// Of the meters.
const (
	meters      = 500
	meterDays   = 3
	dayReadings = 96
	day         = 24 * 3_600_000
)

// meterStart is the first day, which with the others lies in one base.
func meterStart() int64 { return time.Date(2024, time.March, 4, 0, 0, 0, 0, time.UTC).UnixMilli() }

// meterSeries returns readings of all meters, every 15 minutes.
func meterSeries() []harness.TimeSeries {
	var all []harness.TimeSeries
	for m := range meters {
		ts := harness.TimeSeries{Labels: labels.FromStrings("__name__", "energy_kwh", "meter", fmt.Sprintf("e%04d", m))}
		for i := range meterDays * dayReadings {
			ts.Points = append(ts.Points, harness.PointAt(meterStart()+int64(i)*day/dayReadings, float64(1000*m)+float64(i)/4))
		}
		all = append(all, ts)
	}
	harness.SortSeries(all)
	return all
}

// TestScenarioMeters asks for one meter's day, and for that of all.
func TestScenarioMeters(t *testing.T) {
	for _, open := range []func(testing.TB) harness.Backend{harness.Embedded, harness.Emulator} {
		b := open(t)
		t.Run(b.Name, func(t *testing.T) {
			s := startScenario(t, b, meterSeries())
			for n := range int64(meterDays) {
				mint := meterStart() + n*day
				maxt := mint + day - 1
				p := s.read(t, `energy_kwh{meter="e0042"}`, mint, maxt, 1)
				s.checkPass(t, p, mint, maxt, 1)
			}
			mint := meterStart() + day
			maxt := mint + day - 1
			s.checkPass(t, s.read(t, "energy_kwh", mint, maxt, meters), mint, maxt, meters)
		})
	}
}

// checkPass wants p to be one pass over so many rows, each met once, of which it
// reads the slice of a day, [mint, maxt].
func (s scenario) checkPass(t *testing.T, p harness.Plan, mint, maxt int64, rows int) {
	t.Helper()
	for i, r := range p.Rows {
		if i > 0 && r.Start < p.Rows[i-1].Limit {
			t.Errorf("range %v is read after %v", r, p.Rows[i-1])
		}
		if !r.IsRow() || r.Mint != mint || r.Maxt != maxt || r.Cells > dayReadings {
			t.Errorf("a day, [%d, %d], reads %v", mint, maxt, r)
		}
	}
	if got, cells := p.Counts(); len(p.Rows) != rows || got != rows || cells == 0 || cells > rows*dayReadings {
		t.Errorf("a day reads %d ranges, %d rows, %d cells, want %d rows of at most %d", len(p.Rows), got, cells, rows, dayReadings)
	}
}
