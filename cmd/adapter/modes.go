package main

import (
	"fmt"

	"github.com/promtable/promtable/remote/write"
)

// A mode is a way to run in which some flags have an effect.
type mode struct {
	flags []string
	// holds says whether the adapter runs in it.
	holds func(*options) bool
	// otherwise says, behind the name of a flag, why it has no effect and what to change.
	otherwise string
}

// modes has every flag that has no effect in some modes.
var modes = []mode{
	{
		[]string{"storage.path", "retention.size", "snapshot.bucket"},
		(*options).isOnDisk,
		"is for the embedded store: leave it out, or use --storage.backend=embedded",
	},
	{
		[]string{
			"bigtable.project", "bigtable.instance", "bigtable.app-profile", "bigtable.seal-app-profile", "bigtable.table-prefix", "bigtable.connections",
			"bigtable.create-tables", "bigtable.direct-access", "bigtable.client-metrics", "index.refresh", "seal.rows-per-second", "seal.workers",
			"fleet.http.config.file", "fleet.partial-queries", "fleet.partial-reads",
		},
		func(o *options) bool { return !o.isOnDisk() },
		"is for Bigtable: add --storage.backend=bigtable, or leave it out",
	},
	{
		[]string{"storage.min-free-space"},
		func(o *options) bool { return o.isOnDisk() || o.hasDiskLog() },
		"is for the local disk: add --buffer.enabled with the log on it, or leave it out",
	},
	{ // told not to have a buffer, an adapter makes sure that none has left a log there
		[]string{"buffer.path", "buffer.discard-lost-log"},
		func(o *options) bool { return o.buffered || o.given["buffer.enabled"] },
		"is for the buffer, which is off by default on Bigtable: add --buffer.enabled, or leave it out",
	},
	{
		[]string{"buffer.fsync", "buffer.max-log", "buffer.max-memory"},
		func(o *options) bool { return o.buffered || o.command == commandEstimate },
		"is for the buffer: add --buffer.enabled, which on Bigtable is off by default, or leave it out",
	},
	{
		[]string{"seal.rows-per-second", "seal.workers", "bigtable.seal-app-profile"},
		func(o *options) bool { return o.seal.enabled || o.command != commandServe },
		"is for sealing, which is off: leave out --no-seal.enabled or --buffer.enabled, or leave it out",
	},
	{
		[]string{"rollup.rows-per-second"},
		func(o *options) bool { return o.rollups && len(o.resolutions()) > 0 || o.command != commandServe },
		"is for making rollups, which is off: leave out --no-rollup.enabled, or --retention.resolution-5m=off with --retention.resolution-1h=off, or leave it out",
	},
	{
		[]string{"fleet.address", "fleet.web.config.file", "buffer.log"},
		func(o *options) bool { return o.fleet.listen != "" },
		"needs --fleet.listen-address",
	},
	{
		[]string{"buffer.path", "buffer.fsync", "buffer.discard-lost-log"},
		func(o *options) bool { return !o.hasRowLog() },
		"is for a log on the disk: leave out --buffer.log=bigtable, or leave it out",
	},
	{
		[]string{"ha.failover"},
		func(o *options) bool { return o.engine.HA.ClusterLabel != "" },
		"needs --ha.cluster-label and --ha.replica-label",
	},
	{
		[]string{"tenancy.create", "tenancy.from", "tenancy.self-tenant"},
		func(o *options) bool { return o.tenancy.enabled },
		"is for a store with tenants: add --tenancy, or leave it out",
	},
	{
		[]string{"tenancy.label", "tenancy.keep-label"},
		func(o *options) bool { return o.tenancy.from == fromLabel },
		"is for tenants that labels name: add --tenancy.from=label, or leave it out",
	},
	{ // a command may ask an adapter that has tenants
		[]string{"tenancy.header", "tenant"},
		func(o *options) bool { return o.tenancy.enabled || o.command != commandServe },
		"is for a store with tenants: add --tenancy, or leave it out",
	},
	{
		[]string{"otlp.delta.max-stale", "otlp.delta.max-streams"},
		func(o *options) bool { return o.remote.OTLP.Deltas == write.SumDeltas },
		"is for deltas that are added up: add --enable-feature=otlp-deltatocumulative, or leave it out",
	},
	{
		[]string{"web.allowed-hosts"},
		func(o *options) bool { return o.adminAPI },
		"is for the admin API: add --web.enable-admin-api, or leave it out",
	},
}

func (o *options) isOnDisk() bool { return o.traits().OnDisk }

// checkModes refuses flags that have no effect in the modes that others choose. It comes after the checks that set defaults.
func (o *options) checkModes() error {
	for _, m := range modes {
		if m.holds(o) {
			continue
		}
		for _, name := range m.flags {
			if o.given[name] {
				return fmt.Errorf("--%s %s", name, m.otherwise)
			}
		}
	}
	return nil
}
