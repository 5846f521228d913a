package read_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/prometheus/storage"

	"github.com/promtable/promtable/remote"
	"github.com/promtable/promtable/remote/engine/reader"
	"github.com/promtable/promtable/remote/queries"
	"github.com/promtable/promtable/remote/remotetest"
)

// TestCancelRead: a read is listed while it runs. When it is cancelled, its client is told that an operator has done so.
func TestCancelRead(t *testing.T) {
	for _, kind := range remotetest.ResponseTypes {
		t.Run(kind.String(), func(t *testing.T) {
			active := queries.NewActive(queries.Config{Now: time.Now})
			eng := &remotetest.Engine{OnSelect: func(ctx context.Context, _ reader.Query) (storage.ChunkSeriesSet, error) {
				list := active.List(context.Background())
				if len(list) != 1 || list[0].Kind != "read" || list[0].Query != `{job="a"}; {job="b"}` || *list[0].Start != 1000 || *list[0].End != 60_000 || list[0].Client == "" {
					t.Errorf("listed is %+v", list)
				}
				active.Cancel(context.Background(), list[0].ID)
				<-ctx.Done()
				return nil, ctx.Err()
			}}
			url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) { cfg.Active = active })
			_, err := remotetest.Read(t, url, kind, remotetest.Query(1000, 5000, remotetest.Eq("job", "a")), remotetest.Query(2000, 60_000, remotetest.Eq("job", "b")))
			if err == nil || !strings.Contains(err.Error(), "422") || !strings.Contains(err.Error(), "cancelled by an operator") {
				t.Errorf("the client is told %v", err)
			}
			if list := active.List(context.Background()); len(list) > 0 {
				t.Errorf("after its end listed is %+v", list)
			}
		})
	}
}

// TestBlockedRead: a rule blocks a read one of whose selectors it matches.
func TestBlockedRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte(`= {job="b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := queries.OpenBlockFile(path, log.NewNopLogger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	eng := &remotetest.Engine{Series: remotetest.Stock()}
	url, _ := remotetest.Serve(t, eng, func(cfg *remote.Config) {
		cfg.Active = queries.NewActive(queries.Config{Now: time.Now, Blocked: file})
	})
	for _, kind := range remotetest.ResponseTypes {
		_, err := remotetest.Read(t, url, kind, remotetest.Query(1, 2, remotetest.Eq("job", "a")), remotetest.Query(1, 2, remotetest.Eq("job", "b")))
		if err == nil || !strings.Contains(err.Error(), "422") || !strings.Contains(err.Error(), "blocked by line 1 of --query.block-file") {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := remotetest.Read(t, url, kind, remotetest.Query(1, 2, remotetest.Eq("job", "a"))); err != nil {
			t.Errorf("%s: another is refused: %v", kind, err)
		}
	}
}
