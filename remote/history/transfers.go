package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtable/promtable/bucketstore"
	"github.com/promtable/promtable/remote/request"
	"github.com/promtable/promtable/remote/scope"
)

const (
	// TransfersPath is where a running adapter is told how far imports, copies and heals are, and TransferListPath where it tells that.
	TransfersPath    = "/api/v1/admin/transfers"
	TransferListPath = "/api/v1/status/transfers"
	// reportEvery is how often that is told.
	reportEvery = 2 * time.Second
	// reportTimeout is how long that may take.
	reportTimeout = 5 * time.Second
	// silentAfter is how long after its last report a transfer that has not ended is shown, and endedAfter one that has.
	silentAfter, endedAfter = time.Hour, 24 * time.Hour
	// maxTransfers is how many are known, and maxTransferBytes how large a report may be.
	maxTransfers, maxTransferBytes = 100, 64 << 10
)

// ErrStopped says that an operator of the adapter has stopped a transfer.
var ErrStopped = errors.New("stopped by an operator of the adapter")

// A Transfer is how far an import, a copy or a heal is, as its process says.
type Transfer struct {
	// ID is another one for each run.
	ID string `json:"id"`
	// Kind is import, copy or heal. Source is where the samples come from, without passwords.
	Kind   string `json:"kind"`
	Source string `json:"source"`
	// Begun is when it began, by the clock of its process.
	Begun time.Time `json:"begun"`
	// Done of Parts are done. Samples have been read of about Expected, which is 0 if that is not known.
	Parts    int   `json:"parts"`
	Done     int   `json:"done"`
	Samples  int64 `json:"samples"`
	Expected int64 `json:"expected,omitempty"`
	// Problems is how many parts could not be read or differ, and series that can never be stored.
	Problems int `json:"problems,omitempty"`
	// Ended says that it has, with Error if that is not empty.
	Ended bool   `json:"ended,omitempty"`
	Error string `json:"error,omitempty"`
	// Reported is when the adapter was told, and Stopped says that an operator wants it to end. Reports have neither.
	Reported time.Time `json:"reported"`
	Stopped  bool      `json:"stopped,omitempty"`
}

// Transfers are those of an adapter, by tenant. They are not stored. It is safe for concurrent use.
type Transfers struct {
	now func() time.Time

	// mu guards what follows.
	mu  sync.Mutex
	all []transferOf
}

type transferOf struct {
	Transfer
	tenant string
}

// NewTransfers returns none, with a clock.
func NewTransfers(now func() time.Time) *Transfers { return &Transfers{now: now} }

// Report notes how far a transfer of a tenant is, and says whether it is to stop.
func (t *Transfers) Report(tenant string, report Transfer) (stop bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	report.Reported, report.Stopped = t.now(), false
	t.forget()
	for i := range t.all {
		if of := &t.all[i]; of.tenant == tenant && of.ID == report.ID {
			report.Stopped = of.Stopped
			of.Transfer = report
			return report.Stopped
		}
	}
	if len(t.all) == maxTransfers {
		oldest := slices.MinFunc(t.all, func(a, b transferOf) int { return a.Reported.Compare(b.Reported) })
		t.all = slices.DeleteFunc(t.all, func(of transferOf) bool { return of == oldest })
	}
	t.all = append(t.all, transferOf{report, tenant})
	return false
}

// forget forgets those that are no longer shown.
func (t *Transfers) forget() {
	now := t.now()
	t.all = slices.DeleteFunc(t.all, func(of transferOf) bool {
		keep := silentAfter
		if of.Ended {
			keep = endedAfter
		}
		return now.Sub(of.Reported) > keep
	})
}

// List returns those of some tenants, or of a store without tenants, the last one first.
func (t *Transfers) List(tenants ...string) []Transfer {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget()
	list := []Transfer{}
	for _, of := range t.all {
		if of.tenant == "" && len(tenants) == 0 || slices.Contains(tenants, of.tenant) {
			list = append(list, of.Transfer)
		}
	}
	slices.SortFunc(list, func(a, b Transfer) int { return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(a.ID, b.ID)) })
	return list
}

// Stop makes the next report of a transfer of a tenant end it. It returns false if there is none that runs.
func (t *Transfers) Stop(tenant, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.all {
		if of := &t.all[i]; of.tenant == tenant && of.ID == id && !of.Ended {
			of.Stopped = true
			return true
		}
	}
	return false
}

// Reported calls do, and report with what look adds to t: when it begins, again and again, and at the end. If report says so the context of do ends, and the error is
// ErrStopped.
func Reported(ctx context.Context, t Transfer, look func(*Transfer), report func(context.Context, Transfer) (stop bool), do func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t.Begun = time.Now()
	t.ID = Digest(t.Kind, t.Source, t.Begun.String())
	tell := func() {
		look(&t)
		asked, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
		defer cancel()
		if report(asked, t) {
			stop(ErrStopped)
		}
	}
	telling, end := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() {
		for tell(); bucketstore.Sleep(telling, reportEvery) == nil; tell() {
		}
	})
	err := do(ctx)
	end()
	told.Wait()
	if err != nil && errors.Is(context.Cause(ctx), ErrStopped) {
		err = ErrStopped
	}
	if t.Ended = true; err != nil {
		t.Error = err.Error()
	}
	tell()
	return err
}

// ReportedCopy is Copy, Reported. seen is called as Copy calls its report.
func ReportedCopy(ctx context.Context, cfg CopyConfig, t Transfer, report func(context.Context, Transfer) (stop bool), seen func(Copied)) (copied Copied, err error) {
	var now atomic.Pointer[Copied]
	now.Store(new(Copied))
	err = Reported(ctx, t, func(t *Transfer) { now.Load().show(t) }, report, func(ctx context.Context) (err error) {
		copied, err = Copy(ctx, cfg, func(c Copied) {
			now.Store(&c)
			seen(c)
		})
		now.Store(&copied)
		return err
	})
	return copied, err
}

// show sets how far a transfer is.
func (c *Copied) show(t *Transfer) {
	t.Parts, t.Done, t.Samples, t.Problems = c.Units, c.Same+c.Written+c.Different, c.Samples, c.Different
}

// Report tells the adapter how far a transfer is. One that does not know transfers, or cannot be asked now, stops none.
func (c *Client) Report(ctx context.Context, t Transfer) (stop bool) {
	body, err := json.Marshal(t)
	if err != nil {
		return false
	}
	var answer struct{ Data struct{ Stop bool } }
	_, err = c.try(ctx, http.MethodPut, c.base+TransfersPath, nil, body, &answer)
	return err == nil && answer.Data.Stop
}

// A transfersHandler answers requests about the transfers of a tenant:
//
//	GET     what there are, the last one first
//	PUT     takes a report, and says whether it is to stop
//	DELETE  makes the one stop that the path names
type transfersHandler struct {
	transfers *Transfers
	errors    *request.Responder
}

// NewTransfersHandler returns a handler.
func NewTransfersHandler(transfers *Transfers, errors *request.Responder) http.Handler {
	return &transfersHandler{transfers, errors}
}

// ServeHTTP implements http.Handler.
func (h *transfersHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := h.answer(w, r)
	if err != nil {
		h.errors.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": data}) // the client has hung up
}

func (h *transfersHandler) answer(w http.ResponseWriter, r *http.Request) (data any, err error) {
	tenant := scope.Of(r.Context())
	switch r.Method {
	case http.MethodPut:
		var report Transfer
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTransferBytes)).Decode(&report); err != nil {
			return nil, request.BadRequest("report: %w", err)
		}
		if report.ID == "" || !slices.Contains([]string{"import", "copy", "heal"}, report.Kind) {
			return nil, request.BadRequest("report: give an id, and import, copy or heal as its kind")
		}
		return map[string]bool{"stop": h.transfers.Report(tenant, report)}, nil
	case http.MethodDelete:
		if id := r.PathValue("id"); !h.transfers.Stop(tenant, id) {
			return nil, request.WithStatus(http.StatusNotFound, "no import, copy or heal %q runs", id)
		}
		return map[string]bool{}, nil
	}
	return h.transfers.List(scope.Tenants(r.Context())...), nil
}
