// Package acceptance runs the test suites that Prometheus has for others: the
// acceptance corpus of PromQL, through write and read, and the compliance suite for
// receivers of remote write.
package acceptance
