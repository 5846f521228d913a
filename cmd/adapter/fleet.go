package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log/level"
	configutil "github.com/prometheus/common/config"
	"github.com/prometheus/exporter-toolkit/web"
	sloggokit "github.com/tjhop/slog-gokit"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/bucketstore/meta"
	"github.com/promtable/promtable/remote/fleet"
)

// fleetOptions are the flags about the buffers of several adapters.
type fleetOptions struct {
	// listen is where other adapters ask for open chunks, address what META says of it.
	listen, address string
	// webConfig protects listen, and client is how others are asked.
	webConfig, client string
	// queries and reads say whether answers may be partial.
	queries, reads string
	// mode is modeAll or modeRead.
	mode string
}

func (o *options) fleetFlags(app *kingpin.Application) {
	f := &o.fleet
	app.Flag("mode", "What the adapter does: all, or read, which answers and writes nothing, on Bigtable.").Default(modeAll).EnumVar(&f.mode, modeAll, modeRead)
	app.Flag("fleet.listen-address", "Address at which other adapters on the same Bigtable ask this one for what its buffer has not stored. With it several adapters with buffers answer as one. Empty is none.").StringVar(&f.listen)
	app.Flag("fleet.address", "URL at which others reach --fleet.listen-address, such as http://10.0.0.3:9202. By default the name of the host and the port.").StringVar(&f.address)
	app.Flag("fleet.web.config.file", "File that turns on TLS or basic auth at --fleet.listen-address, in the format of Prometheus' exporter-toolkit.").StringVar(&f.webConfig)
	app.Flag("fleet.http.config.file", "File with how this adapter asks others: TLS and credentials, in the format of http_config of Prometheus.").StringVar(&f.client)
	app.Flag("fleet.partial-queries", "Whether PromQL answers that lack samples of an adapter that cannot be asked have a warning (allow), or fail (deny). A request says otherwise by the header "+fleet.PartialHeader+".").
		Default(fleet.Allow).EnumVar(&f.queries, fleet.Allow, fleet.Deny)
	app.Flag("fleet.partial-reads", "The same for remote read, federation and other protocols, whose answers cannot have a warning.").Default(fleet.Deny).EnumVar(&f.reads, fleet.Allow, fleet.Deny)
}

// The values of --mode.
const (
	modeAll  = "all"
	modeRead = "read"
)

// checkMode turns off what writes, for --mode=read. It comes before the checks that set defaults.
func (o *options) checkMode() error {
	if o.fleet.mode != modeRead || o.command != commandServe {
		return nil
	}
	if !o.traits().Shared {
		return errors.New("--mode=read: of the embedded store there is one adapter: it needs --storage.backend=bigtable")
	}
	for _, name := range []string{"buffer.enabled", "seal.enabled", "rollup.enabled", "web.enable-admin-api", "ha.cluster-label", "fleet.listen-address", "tenancy.create"} {
		if o.given[name] {
			return fmt.Errorf("--%s is for an adapter that writes: leave it out, or --mode=read", name)
		}
	}
	if o.given["self-scrape-interval"] && o.selfScrape > 0 {
		return errors.New("--self-scrape-interval is for an adapter that writes: leave it out, or --mode=read")
	}
	o.readOnly, o.createTables, o.buffered, o.seal.enabled, o.rollups, o.selfScrape = true, false, false, false, false, 0
	o.given["buffer.enabled"] = true // it is off
	return nil
}

// refuseWrites answers all requests of an adapter that only reads, in place of next.
func (o *options) refuseWrites(next http.Handler) http.Handler {
	if !o.readOnly {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this adapter only answers: it has --mode=read", http.StatusForbidden)
	})
}

func (o *options) checkFleet() error {
	f := &o.fleet
	switch {
	case f.listen == "":
		return nil
	case !o.traits().Shared:
		return errors.New("--fleet.listen-address: of the embedded store there is one adapter: it needs --storage.backend=bigtable")
	case !o.buffered:
		return errors.New("--fleet.listen-address needs --buffer.enabled: an adapter without a buffer asks others without it")
	}
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return fmt.Errorf("--fleet.listen-address=%s: %w", f.listen, err)
	}
	if ip := net.ParseIP(host); f.webConfig == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("--fleet.listen-address=%s: a client that reaches it reads all samples: give it --fleet.web.config.file, with client certificates or a password", f.listen)
	}
	if f.address != "" {
		if u, err := url.Parse(f.address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" {
			return fmt.Errorf("--fleet.address=%s: it is no URL such as http://10.0.0.3:9202", f.address)
		}
	}
	return nil
}

// listenForFleet takes the address at which others ask, and returns what META is to say of it. It is empty without such an address.
func (a *adapter) listenForFleet() (address string, err error) {
	f := &a.o.fleet
	if f.listen == "" {
		return "", nil
	}
	scheme := "http"
	if f.webConfig != "" {
		if err := web.Validate(f.webConfig); err != nil {
			return "", fmt.Errorf("--fleet.web.config.file: %w", err)
		}
		files := passwords{path: f.webConfig}
		cfg, err := files.config()
		if err != nil {
			return "", fmt.Errorf("--fleet.web.config.file: %w", err)
		}
		if cfg.TLSConfig.IsEnabled() {
			scheme = "https"
		}
	}
	l, err := a.o.netListen("tcp", f.listen)
	if err != nil {
		return "", fmt.Errorf("--fleet.listen-address=%s: %w", f.listen, err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute}
	a.onClose("end answers to other adapters", func() error {
		return errors.Join(server.Close(), ignoreClosed(l.Close()))
	})
	a.fleetServer = func(h http.Handler) {
		server.Handler = h
		go func() {
			err := web.Serve(l, server, &web.FlagConfig{WebConfigFile: &f.webConfig}, slog.New(sloggokit.NewGoKitHandler(a.logger, slog.LevelWarn)))
			if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				level.Error(a.logger).Log("msg", "other adapters cannot ask this one any more", "err", err)
			}
		}()
	}
	if f.address != "" {
		return f.address, nil
	}
	at := l.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("--fleet.address: %w", err)
		}
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(at.Port)), nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// commandsSeen is after how long cached results have what commands wrote that put rows into Bigtable themselves: they tell no adapter.
const commandsSeen = 5 * time.Minute

// openFleet connects this adapter to others on the store. It answers them from here on.
func (a *adapter) openFleet(appender bucketstore.Appender) error {
	if !a.o.traits().Shared {
		return nil
	}
	cfg := fleet.Config{Meta: a.meta, Schema: a.schema, Now: a.o.now, Joins: a.o.fleet.listen != "", Registerer: a.reg}
	b, buffered := appender.(*buffer.Buffer)
	if buffered {
		cfg.Own = b.ID()
	}
	if path := a.o.fleet.client; path != "" {
		read, _, err := configutil.LoadHTTPConfigFile(path)
		if err != nil {
			return fmt.Errorf("--fleet.http.config.file: %w", err)
		}
		client, err := configutil.NewClientFromConfig(*read, "fleet", configutil.WithDialContextFunc((&net.Dialer{Timeout: fleet.DialTimeout}).DialContext), configutil.WithIdleConnTimeout(time.Minute))
		if err != nil {
			return fmt.Errorf("--fleet.http.config.file: %w", err)
		}
		cfg.Client, cfg.Joins = client, true
	}
	if a.results != nil || len(a.o.ruleFiles.files) > 0 {
		cfg.Late = func(l fleet.Late) {
			if a.results != nil {
				a.results.WrittenBetween(l.Tenant, l.Mint, l.Maxt)
			}
			a.ruleFiles().writtenBetween(l.Tenant, l.Mint, l.Maxt)
		}
		cfg.Lost = func() {
			if a.results != nil {
				a.results.Drop()
			}
			a.ruleFiles().lost()
		}
	}
	a.fleet = fleet.New(cfg)
	a.onClose("", a.fleet.Close)
	if a.fleetServer != nil && buffered {
		a.fleetServer(a.fleet.Serve(b))
	}
	return nil
}

// checkFleetless refuses an adapter that writes beside members and is none. Without a buffer, its samples of one time would win over later ones of theirs; with
// one, it cannot be asked for what is in it.
func (a *adapter) checkFleetless(ctx context.Context, about *meta.Store) error {
	logs, err := about.Logs(ctx)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if l.Address != "" {
			return fmt.Errorf("the adapter at %s has --fleet.listen-address, and beside it all that write have: start this one with --buffer.enabled --fleet.listen-address, or with --mode=read. "+
				"If that adapter is gone for ever, adapter buffer forget %s", l.Address, l.ID)
		}
	}
	return nil
}

// fleetSettings are the flags in which all members have to agree: else what one stores only once another one stores twice.
func (o *options) fleetSettings() string {
	if o.engine.HA.ClusterLabel == "" {
		return "no HA"
	}
	return fmt.Sprintf("--ha.cluster-label=%s --ha.replica-label=%s", o.engine.HA.ClusterLabel, o.engine.HA.ReplicaLabel)
}

// checkSettings refuses an adapter whose settings are others than those of a member that is there.
func (a *adapter) checkSettings(ctx context.Context, about *meta.Store) error {
	logs, err := about.Logs(ctx)
	if err != nil {
		return err
	}
	own := a.o.fleetSettings()
	for _, l := range logs {
		if l.Address != "" && l.Address != a.fleetAddress && l.Settings != own {
			return fmt.Errorf("the adapter at %s has %s, and this one %s: all members of a fleet need the same; to change it stop all of them first", l.Address, l.Settings, own)
		}
	}
	return nil
}
