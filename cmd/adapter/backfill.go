package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/api"

	remoteapi "github.com/promtable/promtable/remote/api"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/rules"
	"github.com/promtable/promtable/remote/scope"
)

// commandBackfill is the subcommand that records rules at earlier times.
const commandBackfill = "rules backfill"

// backfillOptions are the flags of rules backfill.
type backfillOptions struct {
	url               string
	group, start, end string
	yes, isDry        bool
}

func (o *options) backfillCommand(app *kingpin.Application) {
	b := &o.backfill
	c := app.Command("rules", "Recording rules.").Command("backfill", "Let a running adapter record the rules of a group at earlier times. Says first what differs from what is stored, asks, and stores that. The adapter has the rules (--rules.file) and --web.enable-admin-api.")
	c.Flag("url", "URL of the adapter, where operators ask it.").Default("http://localhost:9201").StringVar(&b.url)
	o.asks(c, "the adapter")
	c.Flag("group", "Name of the group, or FILE;NAME as in /api/v1/rules.").Required().StringVar(&b.group)
	c.Flag("start", "Record from this time on: RFC 3339, or seconds since 1970.").Required().StringVar(&b.start)
	c.Flag("end", "Record up to this time, inclusive. Default: as far as the group is recorded.").StringVar(&b.end)
	c.Flag("dry-run", "Say what differs, and store nothing.").BoolVar(&b.isDry)
	c.Flag("yes", "Do not say first what differs, and do not ask.").BoolVar(&b.yes)
}

// backfillRules runs rules backfill.
func backfillRules(ctx context.Context, o *options, _ log.Logger) error {
	b := &o.backfill
	start, err := parseMillis(b.start, 0)
	if err != nil {
		return fmt.Errorf("--start=%s: %w", b.start, err)
	}
	end, err := parseMillis(b.end, o.now().UnixMilli())
	if err != nil {
		return fmt.Errorf("--end=%s: %w", b.end, err)
	}
	if start > end {
		return errors.New("--start is after --end")
	}
	client, err := o.apiClient("url", b.url)
	if err != nil {
		return err
	}
	if !b.yes || b.isDry {
		found, err := b.pass(ctx, client, o.out, start, end, true)
		if err != nil {
			return err
		}
		if b.isDry || found.Samples() == 0 {
			fmt.Fprintln(o.out, "nothing is stored")
			return nil
		}
		fmt.Fprint(o.out, "Store them? Type yes: ")
		if answer, err := bufio.NewReader(o.in).ReadString('\n'); strings.TrimSpace(answer) != "yes" {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			fmt.Fprintln(o.out, "nothing is stored")
			return err
		}
	}
	found, err := b.pass(ctx, client, o.out, start, end, false)
	if err != nil {
		return err
	}
	if found.Failed > 0 {
		return fmt.Errorf("the rules fail at %d steps, which have no samples; the others are stored: %s", found.Failed, found.Error)
	}
	fmt.Fprintf(o.out, "done: %d samples are stored, and were found after that\n", found.Samples())
	return nil
}

// pass asks for all parts, one after the other, from start to end, in milliseconds.
func (b *backfillOptions) pass(ctx context.Context, client api.Client, out io.Writer, start, end int64, isDry bool) (all rules.Difference, err error) {
	for start != 0 {
		part, err := b.ask(ctx, client, start, end, isDry)
		if err != nil {
			return all, fmt.Errorf("from %s on: %w", time.UnixMilli(start).UTC().Format(time.RFC3339), err)
		}
		if part.Last == 0 {
			break
		}
		all.Add(part.Difference)
		fmt.Fprintf(out, "%s to %s: %s\n", time.UnixMilli(part.First).UTC().Format(time.RFC3339), time.UnixMilli(part.Last).UTC().Format(time.RFC3339), differenceText(part.Difference))
		start = part.Next
	}
	fmt.Fprintf(out, "in all: %s\n", differenceText(all))
	return all, nil
}

// differenceText says what a difference is.
func differenceText(d rules.Difference) string {
	text := fmt.Sprintf("%d steps, %d samples equal, %d missing, %d with another value, %d of series that end", d.Steps, d.Equal, d.Missing, d.Changed, d.Extra)
	if d.Failed > 0 {
		text += fmt.Sprintf("; %d steps fail: %s", d.Failed, d.Error)
	}
	return text
}

// ask asks for one part.
func (b *backfillOptions) ask(ctx context.Context, client api.Client, start, end int64, isDry bool) (part rules.Backfill, err error) {
	seconds := func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }
	form := url.Values{"group": {b.group}, "start": {seconds(start)}, "end": {seconds(end)}, "dry_run": {strconv.FormatBool(isDry)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, client.URL("/api/v1/admin/rules/backfill", nil).String(), strings.NewReader(form.Encode()))
	if err != nil {
		return part, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, body, err := client.Do(ctx, r)
	if err != nil {
		return part, err
	}
	var answer struct {
		Error string
		Data  rules.Backfill
	}
	if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != http.StatusOK {
		if answer.Error == "" {
			answer.Error = request.Abbreviate(string(body))
		}
		return part, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return answer.Data, nil
}

// backfill answers the HTTP API.
func (a *adapter) backfill(ctx context.Context, asked remoteapi.Backfill) (any, error) {
	all := a.ruleFiles()
	if all == nil || all.byTenant[scope.Of(ctx)] == nil {
		return nil, request.BadRequest("there are no rules of this tenant")
	}
	start := time.UnixMilli(max(asked.Start.UnixMilli(), 0))
	end := time.UnixMilli(min(asked.End.UnixMilli(), math.MaxInt64/2))
	found, err := all.byTenant[scope.Of(ctx)].Backfill(ctx, asked.Group, start, end, asked.IsDry)
	if wrong := (*rules.GroupError)(nil); errors.As(err, &wrong) {
		err = request.BadRequest("%w", err)
	}
	return found, err
}
