// Package api tests the HTTP API for queries without a Prometheus beside it: which
// handlers serve it, and which rows the queries of typical uses touch.
package api
