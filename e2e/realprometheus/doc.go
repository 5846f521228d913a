// Package realprometheus tests the adapter beside a running Prometheus: it scrapes,
// writes to the adapter and reads from it, and the answers of both are compared.
package realprometheus
