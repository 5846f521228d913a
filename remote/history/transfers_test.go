package history

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/promtable/promtable/remote/request"
)

// TestTransfers: each tenant sees its own, until they are old, and stops them. There are only so many.
func TestTransfers(t *testing.T) {
	at := time.UnixMilli(start)
	all := NewTransfers(func() time.Time { return at })
	all.Report("a", Transfer{ID: "1", Kind: "import", Begun: at})
	all.Report("a", Transfer{ID: "2", Kind: "copy", Begun: at.Add(time.Second)})
	if got := all.List("a"); len(got) != 2 || got[0].ID != "2" || len(all.List()) != 0 {
		t.Errorf("there are %+v, and of another tenant %+v", got, all.List())
	}
	if all.Stop("", "1") || all.Stop("a", "3") || !all.Stop("a", "1") {
		t.Error("another one is stopped, or not this one")
	}
	if all.Report("a", Transfer{ID: "2", Ended: true}) || !all.Report("a", Transfer{ID: "1", Done: 1}) || !all.Report("a", Transfer{ID: "1", Ended: true}) {
		t.Error("another one is to stop, or not this one")
	}
	if all.Stop("a", "1") {
		t.Error("one that has ended is stopped")
	}
	all.Report("a", Transfer{ID: "4"})
	if at = at.Add(2 * time.Hour); len(all.List("a")) != 2 {
		t.Errorf("after two hours there are %+v, of which one is silent", all.List("a"))
	}
	if at = at.Add(24 * time.Hour); len(all.List("a")) != 0 {
		t.Errorf("after a day there are %+v", all.List("a"))
	}
	for n := range 2 * maxTransfers {
		at = at.Add(time.Second)
		all.Report("a", Transfer{ID: Digest(at.String()), Done: n})
	}
	if got := all.List("a"); len(got) != maxTransfers || all.List("a")[0].Done < maxTransfers {
		t.Errorf("there are %d", len(got))
	}
}

// TestReported: an import is told of while it runs and at its end, and ends if an operator wants it to. An adapter that does not know of transfers stops none.
func TestReported(t *testing.T) {
	s := newStore(t)
	transfers := NewTransfers(now)
	handler := NewTransfersHandler(transfers, request.NewResponder(log.NewNopLogger(), now))
	mux := http.NewServeMux()
	mux.Handle(TransfersPath, handler)
	mux.Handle(TransfersPath+"/{id}", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c, err := NewClient(Server{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	send := func(method, path, body string) (status int) {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	run := func(do func(context.Context) error) error {
		return Reported(t.Context(), Transfer{Kind: "import", Source: "x"}, func(of *Transfer) { of.Done = 3 }, c.Report, do)
	}
	err = run(func(ctx context.Context) error {
		for len(transfers.List()) == 0 {
			time.Sleep(time.Millisecond)
		}
		of := transfers.List()[0]
		if of.Source != "x" || of.Done != 3 || of.Ended {
			t.Errorf("it is %+v", of)
		}
		if status := send(http.MethodDelete, TransfersPath+"/"+of.ID, ""); status != http.StatusOK {
			t.Errorf("to stop it is a %d", status)
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if of := transfers.List()[0]; !errors.Is(err, ErrStopped) || !of.Ended || of.Error != ErrStopped.Error() {
		t.Errorf("it ends with %v: %+v", err, of)
	}
	if err := run(func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if list := transfers.List(); len(list) != 2 {
		t.Errorf("there are %+v", list)
	}
	for _, bad := range []struct{ method, path, body string }{
		{http.MethodPut, TransfersPath, "{"}, {http.MethodPut, TransfersPath, `{"id":"x"}`}, {http.MethodPut, TransfersPath, `{"kind":"import"}`},
	} {
		if status := send(bad.method, bad.path, bad.body); status != http.StatusBadRequest {
			t.Errorf("%v: %d", bad, status)
		}
	}
	if status := send(http.MethodDelete, TransfersPath+"/none", ""); status != http.StatusNotFound {
		t.Errorf("to stop what is not there is a %d", status)
	}
	if serve(t, s, func(next http.Handler) http.Handler { return next }).Report(t.Context(), Transfer{ID: "x", Kind: "copy"}) {
		t.Error("an adapter that does not know of transfers stops one")
	}
}
