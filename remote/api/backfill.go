package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/promtable/promtable/remote/request"
)

// backfillPattern is the request that records rules at earlier times, which is only served with Config.Backfill.
const backfillPattern = "POST /api/v1/admin/rules/backfill"

// A Backfill is what such a request asks for: the steps of a group of rules from Start to End. IsDry says that nothing is stored.
type Backfill struct {
	Group      string
	Start, End time.Time
	IsDry      bool
}

func (a *API) serveBackfill(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Backfill == nil {
		write(w, http.StatusInternalServerError, response{Status: "error", ErrorType: "unavailable", Error: "rules are recorded at earlier times with --rules.file and --web.enable-admin-api"})
		return
	}
	asked := Backfill{Group: r.FormValue("group"), Start: formTime(r, "start"), End: formTime(r, "end")}
	var err error
	switch {
	case asked.Group == "":
		badParameter(w, "group", errors.New("it names a group of rules"))
		return
	case asked.Start.IsZero() || asked.End.Before(asked.Start):
		badParameter(w, "start", fmt.Errorf("%q to %q are no times, one after the other", request.Abbreviate(r.FormValue("start")), request.Abbreviate(r.FormValue("end"))))
		return
	}
	if text := r.FormValue("dry_run"); text != "" {
		if asked.IsDry, err = strconv.ParseBool(text); err != nil {
			badParameter(w, "dry_run", err)
			return
		}
	}
	ctx, end := request.Begin(w, r, a.cfg.Timeout)
	defer end()
	for _, pair := range [][2]string{{"group", asked.Group}, {"start", r.FormValue("start")}, {"end", r.FormValue("end")}, {"dry_run", strconv.FormatBool(asked.IsDry)}} {
		request.Note(ctx, pair[0], pair[1])
	}
	data, err := a.cfg.Backfill(ctx, asked)
	respond(w, data, err)
}
