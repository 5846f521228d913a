package main

import (
	"testing"
	"time"

	"github.com/promtable/promtable/cmd/adapter/estimate"
	"github.com/promtable/promtable/series/rollup"
)

func TestEstimateFlags(t *testing.T) {
	const url = "--prometheus=http://localhost:9090/prometheus"
	usual := estimate.Config{
		DirectCurrent: time.Minute, BufferedCurrent: 15 * time.Minute,
		BufferMemory: 512 << 20, BufferLog: 512 << 20, Prices: estimate.DefaultPrices,
		Adapters: 1, BigtableMemory: 2 << 30, BigtableLog: 12 << 30, WrittenSeries: 1e7, CachedSeries: 2e6,
	}
	with := func(change func(*estimate.Config)) estimate.Config {
		cfg := usual
		change(&cfg)
		return cfg
	}
	for _, tt := range []struct {
		args    []string
		want    estimate.Config
		refused string
	}{
		{[]string{url}, usual, ""},
		{[]string{url, "--json", "--measure-for=30s", "--current.flush-interval=5m"}, with(func(c *estimate.Config) { c.DirectCurrent, c.BufferedCurrent = 5*time.Minute, 5*time.Minute }), ""},
		{[]string{url, "--retention.resolution-raw=30d", "--retention.resolution-5m=1y", "--retention.resolution-1h=0"},
			with(func(c *estimate.Config) {
				c.Keep = [rollup.NumResolutions]time.Duration{30 * 24 * time.Hour, 365 * 24 * time.Hour, 0}
			}), ""},
		{[]string{url, "--price.node-hour=1.5", "--price.ssd-gb-month=0", "--price.hdd-gb-month=0.5", "--buffer.max-memory=1GiB"},
			with(func(c *estimate.Config) {
				c.Prices, c.BufferMemory, c.BigtableMemory = estimate.Prices{NodeHour: 1.5, HDDMonth: 0.5}, 1<<30, 1<<30
			}), ""},
		{[]string{url, "--adapters=3", "--adapters.by-series", "--buffer.max-log=2GiB", "--index.written-series=5", "--write.cached-series=6"}, with(func(c *estimate.Config) {
			c.Adapters, c.BySeries, c.BufferedCurrent, c.BufferLog, c.BigtableLog, c.WrittenSeries, c.CachedSeries = 3, true, fleetCurrentInterval, 2<<30, 2<<30, 5, 6
		}), ""},
		{[]string{url, "--adapters=0"}, usual, "--adapters=0"},
		{nil, usual, "--prometheus"},
		{[]string{"--prometheus=localhost:9090"}, usual, "--prometheus=localhost:9090: give a URL"},
		{[]string{"--prometheus=ftp://host"}, usual, "give a URL"},
		{[]string{"--prometheus=http://"}, usual, "give a URL"},
		{[]string{url, "--measure-for=0s"}, usual, "--measure-for=0s is too short"},
		{[]string{url, "--price.node-hour=-1"}, usual, "--price.node-hour"},
		{[]string{url, "--price.hdd-gb-month=NaN"}, usual, "--price.hdd-gb-month"},
	} {
		if o := parseOrRefuse(t, append([]string{"estimate"}, tt.args...), tt.refused); o != nil && (o.command != commandEstimate || o.estimateConfig() != tt.want) {
			t.Errorf("%v: %+v, want %+v", tt.args, o.estimateConfig(), tt.want)
		}
	}
}
