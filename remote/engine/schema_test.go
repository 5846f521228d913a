package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/series"
)

func TestOpenChecksTheSchema(t *testing.T) {
	tests := []struct {
		name            string
		first, second   []string
		tenancy         bool
		refused         bool
		wantMessagePart string
	}{
		{name: "the same", first: []string{"host", "pod"}, second: []string{"pod", "host"}},
		{name: "none", first: nil, second: []string{}},
		{name: "one more", first: []string{"host"}, second: []string{"host", "pod"}, refused: true, wantMessagePart: "start with --schema.resource-label=host"},
		{name: "one less", first: []string{"host", "pod"}, second: []string{"host"}, refused: true, wantMessagePart: "start with --schema.resource-label=host --schema.resource-label=pod"},
		{name: "none any more", first: []string{"host"}, refused: true, wantMessagePart: "--schema.resource-label=host"},
		{name: "the first", second: []string{"host"}, refused: true, wantMessagePart: "no --schema.resource-label"},
		{name: "tenants", tenancy: true, refused: true, wantMessagePart: "tenancy"},
	}
	for _, b := range backends() {
		for _, tt := range tests {
			t.Run(b.name+"/"+tt.name, func(t *testing.T) {
				c := newClock(someTime)
				f := openOn(t, b.open(t, c), c, func(c *engine.Config) { c.Schema = newSchema(t, tt.first...) })
				schema, err := series.NewSchema(tt.second, tt.tenancy)
				if err != nil {
					t.Fatal(err)
				}
				e, err := engine.Open(t.Context(), engine.Config{Store: f.store, Now: c.now, Schema: schema})
				if err == nil {
					defer func() {
						if err := e.Close(context.Background()); err != nil {
							t.Error(err)
						}
					}()
				}
				if errors.Is(err, engine.ErrSchema) != tt.refused || tt.refused != (err != nil) {
					t.Fatalf("second Open: %v", err)
				}
				if tt.refused && !strings.Contains(err.Error(), tt.wantMessagePart) {
					t.Errorf("message %q lacks %q", err, tt.wantMessagePart)
				}
				f.reopen(t) // the first is still good
			})
		}
	}
}

// The stored bytes are part of the format.
func TestSchemaGolden(t *testing.T) {
	tests := []struct {
		resource []string
		want     string
	}{
		{nil, `{"format":1,"resource_labels":[],"tenancy":false}`},
		{[]string{"pod", "host"}, `{"format":1,"resource_labels":["host","pod"],"tenancy":false}`},
	}
	for _, tt := range tests {
		f := openFixture(t, func(c *engine.Config) { c.Schema = newSchema(t, tt.resource...) })
		f.clock.ms.Add(time.Hour.Milliseconds())
		f.reopen(t) // which changes nothing
		rows := 0
		err := f.store.Scan(t.Context(), bucketstore.ScanRequest{
			Table:    bucketstore.Meta,
			Rows:     []series.RowRange{{}},
			Families: []bucketstore.FamilyRange{{Family: "m"}},
		}, func(r bucketstore.Row) error {
			rows++
			c := r.Cells[0]
			if string(r.Key) != "schema" || string(c.Qualifier) != "v" || c.Time != someTime || string(c.Value) != tt.want {
				t.Errorf("row %q: %s@%d = %s, want %s", r.Key, c.Qualifier, c.Time, c.Value, tt.want)
			}
			return nil
		})
		if err != nil || rows != 1 {
			t.Errorf("%d rows of META, error %v", rows, err)
		}
	}
}

func TestOpenRefusesAnotherFormat(t *testing.T) {
	for _, stored := range []string{`{"format":2,"resource_labels":[],"tenancy":false}`, `{}`, `{"format":2,"resource_labels":{"new":"shape"}}`, `no JSON`} {
		t.Run(stored, func(t *testing.T) {
			c := newClock(someTime)
			store := openEmbedded(t, c)
			err := store.Apply(t.Context(), bucketstore.Meta, []bucketstore.Mutation{{Key: []byte("schema"), Ops: []bucketstore.Op{
				{Kind: bucketstore.SetCell, Family: "m", Qualifier: []byte("v"), Value: []byte(stored)},
			}}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = engine.Open(t.Context(), engine.Config{Store: store, Now: c.now})
			if !errors.Is(err, engine.ErrSchema) || !strings.Contains(err.Error(), "format") {
				t.Errorf("Open: %v, want ErrSchema", err)
			}
		})
	}
}
