package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/promtable/promtable/cmd/adapter/estimate"
	"github.com/promtable/promtable/remote/engine"
)

const commandEstimate = "estimate"

// estimateOptions are the flags of estimate.
type estimateOptions struct {
	prometheus *url.URL
	between    time.Duration
	json       bool
	adapters   int
	bySeries   bool
	prices     estimate.Prices
}

func (o *options) estimateCommand(app *kingpin.Application) {
	e := &o.estimate
	e.prices = estimate.DefaultPrices
	c := app.Command(commandEstimate, "Read a running Prometheus, and say what its series and samples would cost here: row mutations, stored bytes, memory, nodes and money. "+
		"It reads Prometheus only, and takes a minute.")
	c.Flag("prometheus", "Base URL of Prometheus, such as http://localhost:9090.").Required().URLVar(&e.prometheus)
	o.asks(c, "Prometheus")
	c.Flag("measure-for", "Time between two reads of Prometheus' counters: its longest scrape interval, or a multiple.").Default("1m").DurationVar(&e.between)
	c.Flag("adapters", "How many adapters share the load on Bigtable: with the buffer, how many members a fleet has.").Default("1").IntVar(&e.adapters)
	c.Flag("adapters.by-series", "Each adapter gets series of its own, from a sender or a balancer that divides them. Default: each gets samples of every series, and has chunks of its own.").BoolVar(&e.bySeries)
	c.Flag("json", "Print JSON.").BoolVar(&e.json)
	// No rollups are made yet: when a start has these flags, they are its.
	for _, price := range []struct {
		name, help string
		value      *float64
	}{
		{"price.node-hour", "Price of a node of Bigtable for an hour.", &e.prices.NodeHour},
		{"price.ssd-gb-month", "Price of a GB on SSD in Bigtable for a month.", &e.prices.SSDMonth},
		{"price.hdd-gb-month", "Price of a GB on HDD in Bigtable for a month.", &e.prices.HDDMonth},
	} {
		c.Flag(price.name, price.help).Default(fmt.Sprint(*price.value)).Float64Var(price.value)
	}
}

// checkEstimate checks the flags of estimate.
func (o *options) checkEstimate() error {
	e := &o.estimate
	if o.command != commandEstimate {
		return nil
	}
	switch {
	case e.prometheus.Scheme != "http" && e.prometheus.Scheme != "https" || e.prometheus.Host == "":
		return fmt.Errorf("--prometheus=%s: give a URL such as http://localhost:9090", e.prometheus.Redacted())
	case e.between < time.Second:
		return fmt.Errorf("--measure-for=%s is too short: give it the scrape interval of Prometheus, or a multiple", e.between)
	case e.adapters < 1:
		return fmt.Errorf("--adapters=%d: give it 1 or more", e.adapters)
	case !(min(e.prices.NodeHour, e.prices.SSDMonth, e.prices.HDDMonth) >= 0): // NaN too
		return errors.New("--price.node-hour, --price.ssd-gb-month and --price.hdd-gb-month are not negative")
	}
	return nil
}

// printEstimate runs estimate.
func printEstimate(ctx context.Context, o *options, logger log.Logger) error {
	schema, err := newSchema(o)
	if err != nil {
		return err
	}
	level.Info(logger).Log("msg", "reading Prometheus", "url", o.estimate.prometheus.Redacted(), "for", o.estimate.between)
	client, err := o.serverClient("")
	if err != nil {
		return err
	}
	source := estimate.Source{URL: o.estimate.prometheus, Client: client, Schema: schema, Between: o.estimate.between}
	measured, err := source.Measure(ctx)
	if err != nil {
		return err
	}
	e := estimate.New(measured, o.estimateConfig())
	if !o.estimate.json {
		return e.Print(o.out)
	}
	encoder := json.NewEncoder(o.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(e)
}

// estimateConfig returns how an adapter with these flags would run.
func (o *options) estimateConfig() estimate.Config {
	cfg := estimate.Config{
		Keep:          o.retention.keep(),
		DirectCurrent: o.engine.CurrentInterval, BufferedCurrent: o.engine.CurrentInterval,
		Adapters:     float64(o.estimate.adapters),
		BySeries:     o.estimate.bySeries,
		BufferMemory: float64(o.bufferMemory.Base2Bytes), BufferLog: float64(o.bufferLog.Base2Bytes),
		BigtableMemory: float64(o.bufferMemory.Base2Bytes), BigtableLog: float64(o.bufferLog.Base2Bytes),
		WrittenSeries: float64(o.engine.WrittenSeries), CachedSeries: float64(o.engine.CachedSeries),
		Prices: o.estimate.prices,
	}
	if !o.given["current.flush-interval"] {
		cfg.DirectCurrent, cfg.BufferedCurrent = engine.Config{}.WithDefaults().CurrentInterval, bufferedCurrentInterval
		if cfg.Adapters > 1 {
			cfg.BufferedCurrent = fleetCurrentInterval
		}
	}
	if !o.given[o.bufferMemory.flag] {
		cfg.BigtableMemory = float64(bigtableMaxMemory)
	}
	if !o.given[o.bufferLog.flag] {
		cfg.BigtableLog = float64(bigtableMaxLog)
	}
	return cfg
}
