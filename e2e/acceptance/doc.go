// Package acceptance runs the test suites of Prometheus for other implementations: the
// acceptance corpus of PromQL, through write and read, and the compliance suite for
// receivers of remote write.
package acceptance
