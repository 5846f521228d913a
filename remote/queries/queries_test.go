package queries_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
)

// TestActive: a query is listed from its begin to its end, with what it holds, and ends when it is cancelled by its ID.
func TestActive(t *testing.T) {
	now := time.Unix(1000, 0)
	reg := prometheus.NewRegistry()
	active := queries.NewActive(queries.Config{Now: func() time.Time { return now }, Registerer: reg})
	if list := active.List(context.Background()); list == nil || len(list) > 0 {
		t.Errorf("listed are %+v, want an empty list", list)
	}
	first := queries.Query{
		Kind: request.QueryRange, Exprs: []string{"sum(up)"}, Start: time.Unix(1, 0), End: time.Unix(2, 0), Step: time.Minute,
		Client: request.Client{Address: "one:1", User: "u", ForwardedFor: "f", UserAgent: "a"},
	}
	ctx, end, err := active.Begin(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	usage := &reader.Usage{}
	other, endOther, err := active.Begin(reader.WithUsage(t.Context(), usage), queries.Query{Kind: queries.Series, Exprs: []string{"a", "b"}})
	if err != nil || reader.UsageOf(other) != usage || reader.UsageOf(ctx) == nil {
		t.Fatal("a query has the wrong usage", err)
	}
	memory := eval.NewMemory(0, 0)
	held, release := memory.With(ctx)
	if err := errors.Join(eval.Hold(held, 100, "x"), eval.Lend(held, 10, "x")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(3 * time.Second)

	list := active.List(context.Background())
	if len(list) != 2 || list[0].ID >= list[1].ID {
		t.Fatalf("listed are %+v", list)
	}
	got := list[0]
	if *got.Start != 1000 || *got.End != 2000 {
		t.Errorf("from %d to %d", *got.Start, *got.End)
	}
	got.Start, got.End = nil, nil
	want := queries.Running{
		ID: got.ID, Kind: "range", Query: "sum(up)", Step: 60_000, Client: "one:1", User: "u", ForwardedFor: "f", UserAgent: "a", AgeSeconds: 3, HeldBytes: 110,
	}
	if got != want {
		t.Errorf("listed is %+v, want %+v", got, want)
	}
	if q := list[1]; q.Query != "a; b" || q.Start != nil || q.End != nil || q.HeldBytes != 0 {
		t.Errorf("listed is %+v", q)
	}
	release()
	if got := active.List(context.Background())[0].HeldBytes; got != 0 || memory.Held() != 0 {
		t.Errorf("after the end %d bytes are held, %d of all", got, memory.Held())
	}

	for _, id := range []string{"", "x", "1", want.ID + "0"} {
		if _, ok := active.Cancel(context.Background(), id); ok {
			t.Errorf("%q is cancelled", id)
		}
	}
	for range 2 { // the second time changes nothing
		if q, ok := active.Cancel(context.Background(), want.ID); !ok || q.ID != want.ID || !q.Cancelled {
			t.Errorf("cancelled is %+v, %t", q, ok)
		}
	}
	if n := counterOf(t, reg, "adapter_cancelled_queries_total", "range"); n != 1 {
		t.Errorf("%g are counted", n)
	}
	<-ctx.Done()
	err = queries.Cause(ctx, ctx.Err())
	if !errors.Is(err, queries.ErrCancelled) || !errors.Is(err, context.Canceled) || request.Status(t.Context(), request.Remote, err) != http.StatusUnprocessableEntity {
		t.Errorf("the error is %v", err)
	}
	if err := queries.Cause(ctx, nil); err != nil {
		t.Errorf("a query that has succeeded ends with %v", err)
	}
	if other.Err() != nil || queries.Cause(other, context.Canceled) != context.Canceled {
		t.Errorf("the other query ends, too: %v", other.Err())
	}
	if _, ok := active.Cancel(scope.With(t.Context(), []string{"a"}), list[1].ID); ok || len(active.List(scope.With(t.Context(), []string{"a"}))) > 0 {
		t.Error("a tenant sees or cancels the query of another")
	}
	end()
	if _, ok := active.Cancel(context.Background(), want.ID); ok || len(active.List(context.Background())) != 1 {
		t.Errorf("after the end listed are %+v", active.List(context.Background()))
	}
	endOther()
	if other.Err() == nil || len(active.List(context.Background())) > 0 || queries.Cause(other, context.Canceled) != context.Canceled {
		t.Errorf("after both listed are %+v", active.List(context.Background()))
	}
}

// TestBlocked: a query that a rule blocks does not begin, and its error names the rule.
func TestBlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte("= up\n\n# Ask the team.\n=~ .*down.*"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := queries.OpenBlockFile(path, log.NewNopLogger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	active := queries.NewActive(queries.Config{Now: time.Now, Registerer: reg, Blocked: file})
	for text, want := range map[string]string{
		"up": "the query is blocked by line 1 of --query.block-file", "sum(down)": "the query is blocked by line 4 of --query.block-file: Ask the team.",
	} {
		_, _, err := active.Begin(t.Context(), queries.Query{Kind: request.QueryRead, Exprs: []string{"x", text}})
		if err == nil || err.Error() != want || request.Status(t.Context(), request.Remote, err) != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if n := counterOf(t, reg, "adapter_blocked_queries_total", "read"); n != 2 || len(active.List(context.Background())) > 0 {
		t.Errorf("%g are counted, and listed %+v", n, active.List(context.Background()))
	}
}

// counterOf returns the value of a counter by its name and kind.
func counterOf(t *testing.T, reg *prometheus.Registry, name, kind string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == kind {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no %s of %s", name, kind)
	return 0
}
