package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/promtable/promtable/remote/engine/eval"
	"github.com/promtable/promtable/remote/request"
)

// response is the envelope of Prometheus' HTTP API.
type response struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
	// Warnings are about an answer that is a success.
	Warnings []string `json:"warnings,omitempty"`
}

// respond answers with data, or with err if there is one.
func respond(w http.ResponseWriter, data any, err error) {
	if err != nil {
		status, kind := request.Status(context.Background(), request.API, err), "unavailable"
		if errors.Is(err, eval.ErrMemory) {
			status = http.StatusUnprocessableEntity
		}
		switch {
		case status < http.StatusInternalServerError:
			kind = "execution"
		case status == http.StatusInternalServerError:
			kind = "internal"
		case errors.Is(err, context.DeadlineExceeded):
			kind = "timeout"
		}
		write(w, status, response{Status: "error", ErrorType: kind, Error: err.Error()})
		return
	}
	write(w, http.StatusOK, response{Status: "success", Data: data})
}

// badParameter answers that a parameter cannot be understood.
func badParameter(w http.ResponseWriter, name string, err error) {
	write(w, http.StatusBadRequest, response{Status: "error", ErrorType: "bad_data", Error: fmt.Sprintf("invalid parameter %q: %v", name, err)})
}

func write(w http.ResponseWriter, status int, body response) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, fmt.Appendf(nil, `{"status":"error","errorType":"internal","error":%q}`, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error: the client has hung up
}

// limitParameter reads a parameter that is a number, with a fallback if it is
// not there.
func limitParameter(r *http.Request, name string, fallback int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("it is no number")
	}
	return n, nil
}

// boundedLimit reads the parameter limit likewise, which is from 1 to most.
func boundedLimit(r *http.Request, fallback, most int) (int, error) {
	limit, err := limitParameter(r, "limit", fallback)
	if err == nil && (limit < 1 || limit > most) {
		err = fmt.Errorf("it must be from 1 to %d", most)
	}
	return limit, err
}
