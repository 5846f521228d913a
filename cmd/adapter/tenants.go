package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/bucketstore/buffer"
	"github.com/promtable/promtable/index"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/current"
	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/history"
	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/jobs"
	"github.com/promtable/promtable/remote/jobs/deletion"
	"github.com/promtable/promtable/remote/jobs/drop"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
	"github.com/promtable/promtable/remote/tenancy"
	"github.com/promtable/promtable/remote/users"
	"github.com/promtable/promtable/remote/write"
	"github.com/promtable/promtable/series"
)

// tenancyOptions are the flags about tenants.
type tenancyOptions struct {
	enabled bool
	// from is what names the tenants of a request: fromHeader, with header, fromUser, or for writes fromLabel, with label and keep.
	from, header, label string
	keep                bool
	create              bool
	// own is the tenant of the adapter's own metrics, of is that of a command.
	own, of string
	// name, url and yes are of the subcommands about tenants.
	name, url string
	yes       bool
}

// The values of --tenancy.from.
const (
	fromHeader = "header"
	fromUser   = "user"
	fromLabel  = "label"
)

// ownTenant is the default tenant of the adapter's own metrics.
const ownTenant = "adapter"

func (o *options) tenancyFlags(app *kingpin.Application) {
	t := &o.tenancy
	app.Flag("tenancy", "Keep the samples of many tenants apart, in a store that was made so. It cannot be changed after the first start.").BoolVar(&t.enabled)
	app.Flag("tenancy.from", "What names the tenant of a request: the header of --tenancy.header, or the user, who must have one tenant in --web.users-file, or of each series of a write the label of --tenancy.label; then the header names those of a read.").Default(fromHeader).EnumVar(&t.from, fromHeader, fromUser, fromLabel)
	app.Flag("tenancy.header", "Header of a request that names its tenant, or for queries several with | between them.").Default(tenancy.DefaultHeader).StringVar(&t.header)
	app.Flag("tenancy.label", "Label of each series of a write that names its tenant, with --tenancy.from=label. It is not stored.").Default("tenant").StringVar(&t.label)
	app.Flag("tenancy.keep-label", "Store the label of --tenancy.label, too.").BoolVar(&t.keep)
	app.Flag("tenancy.create", "Make a tenant when it is first written to. Without it, adapter tenant create does.").BoolVar(&t.create)
	app.Flag("tenancy.self-tenant", "Tenant of the adapter's own metrics, which is made.").Default(ownTenant).StringVar(&t.own)
	app.Flag("tenant", "Tenant of a command that reads, writes or deletes samples of a store with tenants.").StringVar(&t.of)
}

// headerName is what a header may be named.
var headerName = regexp.MustCompile("^[A-Za-z0-9-]+$")

func (o *options) checkTenancy() error {
	t := &o.tenancy
	if t.from == fromUser && o.web.usersFile == "" {
		return fmt.Errorf("--tenancy.from=%s needs --web.users-file", fromUser)
	}
	if !model.UTF8Validation.IsValidLabelName(t.label) || t.label == labels.MetricName {
		return fmt.Errorf("--tenancy.label=%s: it is no name of a label", t.label)
	}
	if !headerName.MatchString(t.header) {
		return fmt.Errorf("--tenancy.header=%s: give it letters, digits and -", t.header)
	}
	for _, of := range []struct{ flag, name string }{{"tenancy.self-tenant", t.own}, {"tenant", t.of}} {
		if err := series.CheckTenant(of.name); err != nil && of.name != "" {
			return fmt.Errorf("--%s: %w", of.flag, err)
		}
	}
	return nil
}

// tenantHeader returns the header by which a command asks an adapter with tenants, or nil.
func (o *options) tenantHeader(tenant string) map[string]string {
	if tenant == "" {
		return nil
	}
	return map[string]string{o.tenancy.header: tenant}
}

// tenantSchemas returns the schemas of the tenants of the store, for jobs.
func (a *adapter) tenantSchemas() jobs.Tenants { return jobs.TenantsOf(a.meta, a.schema) }

// commandSchema returns the schema of the samples that a command is about.
func (a *adapter) commandSchema(ctx context.Context) (series.Schema, error) {
	name := a.o.tenancy.of
	switch {
	case !a.schema.Tenancy():
		return a.schema, nil
	case name == "":
		return a.schema, errors.New("the store has tenants: name one with --tenant")
	}
	all, err := a.meta.Tenants(ctx)
	if err != nil {
		return a.schema, err
	}
	for _, t := range all {
		if t.Name == name && t.InUse() {
			return a.schema.ForTenant(name)
		}
	}
	return a.schema, fmt.Errorf("--tenant=%s: there is no such tenant: adapter tenant list shows them, and adapter tenant create makes one", name)
}

// A samples stores and finds samples: an *engine.Engine, or in a store with tenants a *tenancy.Engines, which does so for the tenants of a
// context.
type samples interface {
	storage.Queryable
	storage.ChunkQueryable
	storage.ExemplarQueryable
	history.RowsEngine
	Select(ctx context.Context, q reader.Query) (storage.ChunkSeriesSet, error)
	Metadata(ctx context.Context, family string, limit int) ([]ingest.Metadata, error)
	Cardinality(ctx context.Context, q reader.CountQuery) (*index.Cardinality, *index.Comparison, error)
	MetricNames(ctx context.Context, q index.MetricQuery) (*index.Metrics, map[string]ingest.Metadata, error)
	Extent(ctx context.Context, most int) (index.Extent, error)
	Unread(ctx context.Context, since time.Time, metrics, labels []string) (unreadMetrics, unreadLabels []string, from int64, err error)
	Inventory(ctx context.Context, selectors [][]*labels.Matcher, limit int, fn func(current.Sample) error) (current.Inventory, error)
	Current(ctx context.Context, selectors [][]*labels.Matcher, mint int64) ([]current.Sample, error)
	Explain(ctx context.Context, q reader.Query) (*reader.Explanation, error)
	Measure(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error)
	PlanRead(ctx context.Context, q reader.Query, b *eval.Buckets) (*reader.Explanation, error)
	Delete(ctx context.Context, mint, maxt int64, matchers []*labels.Matcher) error
	FlushCurrent(ctx context.Context) error
	Append(ctx context.Context, batch []ingest.Series, rejected *ingest.Rejected) (ingest.Stored, error)
	AppendMetadata(ctx context.Context, batch []ingest.Metadata, rejected *ingest.Rejected) error
}

// engines are the engine or the engines of a store, and what differs between both.
type engines struct {
	samples
	// tenants is nil in a store without tenants.
	tenants *tenancy.Engines
	// writer returns what stores the samples of a request, and history what takes those of earlier times, by its context.
	writer  func(ctx context.Context) (write.Engine, error)
	history func(ctx context.Context) (*history.Store, error)
	// find returns what finds the series of a tenant.
	find func(tenant string) (deletion.FindSeries, error)
	// own returns the context of the adapter's own metrics.
	own func(ctx context.Context) context.Context
}

// oneEngine returns the engines of a store without tenants, or of a command.
func (a *adapter) oneEngine(e *engine.Engine) engines {
	store := &history.Store{Engine: e, Meta: a.meta.Of(e.Schema())}
	return engines{
		samples: e,
		writer:  func(context.Context) (write.Engine, error) { return e, nil },
		history: func(context.Context) (*history.Store, error) { return store, nil },
		find:    deletion.FindIn(e.SeriesBefore),
		own:     func(ctx context.Context) context.Context { return ctx },
	}
}

// openTenants opens the engines of a store with tenants.
func (a *adapter) openTenants(ctx context.Context, at opened) (engines, error) {
	own := a.o.tenancy.own
	t, err := tenancy.Open(ctx, tenancy.Config{
		Meta: a.meta, Schema: a.schema, Now: a.o.now, Create: a.o.tenancy.create,
		Open: func(schema series.Schema) (*engine.Engine, error) { return newEngine(a, at.store, at.appender, schema) },
	})
	if err == nil && a.o.selfScrape > 0 {
		err = t.Create(ctx, own)
	}
	return engines{
		samples: t, tenants: t, history: t.History, find: t.FindSeries,
		writer: a.writerOf(t),
		own:    func(ctx context.Context) context.Context { return scope.With(ctx, []string{own}) },
	}, err
}

// writerOf returns what stores the samples of a request.
func (a *adapter) writerOf(t *tenancy.Engines) func(ctx context.Context) (write.Engine, error) {
	o := &a.o.tenancy
	return func(ctx context.Context) (write.Engine, error) {
		if o.from != fromLabel || len(scope.Tenants(ctx)) > 0 {
			return t.Writer(ctx)
		}
		by := &tenancy.ByLabel{Engines: t, Label: o.label, Keep: o.keep}
		if a.server.users != nil {
			by.MayUse = func(ctx context.Context, tenant string) bool {
				u := users.Of(ctx)
				return u != nil && u.MayUse(tenant)
			}
		}
		return by, nil
	}
}

// newRemover returns what removes the rows of dropped tenants, or nil in a store without tenants.
func (a *adapter) newRemover(at opened) *drop.Remover {
	if !a.schema.Tenancy() {
		return nil
	}
	cfg := drop.Config{Meta: a.meta, Store: at.rows, Schema: a.schema, Now: a.o.now, Logger: a.logger, Registerer: a.reg}
	own := ""
	b, buffered := at.appender.(*buffer.Buffer)
	if buffered {
		own = b.ID()
	}
	cfg.Retire = func(ctx context.Context, tenant string) error {
		if t := at.engines.tenants; t != nil {
			if err := t.Retire(ctx, tenant); err != nil {
				return err
			}
		}
		if !buffered {
			return nil
		}
		return flushAll(ctx, b)
	}
	if at.engines.tenants != nil || at.rows.Traits().Shared {
		cfg.Settle = drop.Propagation
	}
	if at.rows.Traits().Shared {
		cfg.Waits = func(ctx context.Context) error { return a.noOtherLogs(ctx, own) }
	}
	return drop.New(cfg)
}

// The subcommands about tenants.
const (
	commandTenantList   = "tenant list"
	commandTenantCreate = "tenant create"
	commandTenantDrop   = "tenant drop"
)

func (o *options) tenantCommands(app *kingpin.Application) {
	c := app.Command("tenant", "The tenants of a store. The embedded store must be closed: of a running adapter ask --url, with --web.enable-admin-api.")
	c.Flag("url", "URL of a running adapter, such as http://localhost:9201, in place of the store.").StringVar(&o.tenancy.url)
	o.asks(c, "the adapter")
	c.Command("list", "List the tenants, and what was removed of those that were dropped.")
	made := c.Command("create", "Make a tenant.")
	made.Arg("name", "Its name: up to 150 letters and digits of ASCII and ! - _ . * ' ( ).").Required().StringVar(&o.tenancy.name)
	dropped := c.Command("drop", "Drop a tenant: it is hidden at once, and all its rows are removed. Nothing brings it back but a snapshot.")
	dropped.Arg("name", "Its name.").Required().StringVar(&o.tenancy.name)
	dropped.Flag("yes", "Do not ask.").BoolVar(&o.tenancy.yes)
}

// manageTenants runs the subcommands about tenants.
func manageTenants(ctx context.Context, o *options, logger log.Logger) error {
	return runTenants(ctx, o, logger, os.Stdin, os.Stdout)
}

func runTenants(ctx context.Context, o *options, logger log.Logger, in io.Reader, out io.Writer) (err error) {
	if o.command == commandTenantDrop && !o.tenancy.yes {
		fmt.Fprintf(out, "All samples of the tenant %s are removed, for ever. Type its name: ", o.tenancy.name)
		answer, err := bufio.NewReader(in).ReadString('\n')
		if strings.TrimSpace(answer) != o.tenancy.name {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			fmt.Fprintln(out, "nothing is dropped")
			return err
		}
	}
	if o.tenancy.url != "" {
		return o.askTenants(ctx, out)
	}
	existing := o.forExisting()
	existing.tenancy.enabled = true
	a, err := newAdapter(existing, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	at, err := a.openEngine(ctx, opening{noEngine: true})
	if err != nil {
		return err
	}
	switch o.command {
	case commandTenantCreate:
		t, err := tenancy.Open(ctx, tenancy.Config{Meta: a.meta, Schema: a.schema, Now: a.o.now})
		if err == nil {
			err = t.Create(ctx, o.tenancy.name)
		}
		return err
	case commandTenantDrop:
		if err := drop.Mark(ctx, a.meta, a.o.now(), o.tenancy.name, processName()); err != nil {
			return err
		}
		err := a.newRemover(at).Once(ctx)
		if errors.Is(err, drop.ErrWaiting) {
			fmt.Fprintln(out, "it is hidden; an adapter that serves removes its rows:", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is hidden, and the next drop, or an adapter that serves, removes the rest: %w", err)
		}
	}
	all, err := a.meta.Tenants(ctx)
	if err != nil {
		return err
	}
	var list []tenancy.Listed
	for _, t := range all {
		if o.command == commandTenantList || t.Name == o.tenancy.name {
			list = append(list, tenancy.Describe(t))
		}
	}
	return printTenants(out, list)
}

// askTenants asks a running adapter.
func (o *options) askTenants(ctx context.Context, out io.Writer) error {
	method, path := http.MethodGet, tenancy.AdminPath
	switch o.command {
	case commandTenantCreate:
		method, path = http.MethodPost, path+"/"+url.PathEscape(o.tenancy.name)
	case commandTenantDrop:
		method, path = http.MethodDelete, path+"/"+url.PathEscape(o.tenancy.name)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(o.tenancy.url, "/")+path, nil)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	client, err := o.serverClient("")
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		return cmp.Or(err, fmt.Errorf("%s answers %s: %s", req.URL.Redacted(), resp.Status, bytes.TrimSpace(body)))
	}
	if method != http.MethodGet {
		return nil
	}
	var answer struct{ Data []tenancy.Listed }
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s answers what is no list of tenants: %w", req.URL.Redacted(), err)
	}
	return printTenants(out, answer.Data)
}

// printTenants prints a list.
func printTenants(out io.Writer, list []tenancy.Listed) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TENANT\tSTATE\tCREATED\tUNREADABLE SINCE\tREMOVED AT\tREMOVED ROWS\tBY")
	at := func(ms int64) string {
		if ms == 0 {
			return "-"
		}
		return time.UnixMilli(ms).UTC().Format(time.RFC3339)
	}
	for _, t := range list {
		var removed []string
		for _, name := range slices.Sorted(maps.Keys(t.Removed)) {
			removed = append(removed, fmt.Sprintf("%s %d", name, t.Removed[name]))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.State, at(t.Created), at(t.Dropping), at(t.Dropped), cmp.Or(strings.Join(removed, ", "), "-"), cmp.Or(t.By, "-"))
	}
	return table.Flush()
}

// ofTenants lets h answer requests that name tenants, in a store that has them.
func (a *adapter) ofTenants(t *tenancy.Engines, h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	find := tenancy.FromHeader(a.o.tenancy.header)
	if a.o.tenancy.from == fromUser {
		find = users.OwnTenant(a.o.tenancy.header)
	} else if a.server.users != nil {
		find = users.Check(find)
	}
	return t.Handler(find, request.NewResponder(a.logger, a.o.now), h)
}

// failingOf returns the rows that the store does not take, of the tenants of a context.
func (a *adapter) failingOf() func(ctx context.Context) []bucketstore.FailingRow {
	if a.failingRows == nil || !a.schema.Tenancy() {
		return func(context.Context) []bucketstore.FailingRow {
			if a.failingRows == nil {
				return nil
			}
			return a.failingRows()
		}
	}
	return func(ctx context.Context) []bucketstore.FailingRow {
		return failingOfTenant(a.failingRows(), scope.Of(ctx))
	}
}

// failingOfTenant returns the rows that are of a tenant.
func failingOfTenant(rows []bucketstore.FailingRow, tenant string) (own []bucketstore.FailingRow) {
	for _, row := range rows {
		if name, err := series.TenantOf([]byte(row.Key)); err == nil && name == tenant {
			own = append(own, row)
		}
	}
	return own
}
