// Package e2e holds only tests: they build the adapter, a real Prometheus and
// the Bigtable emulator, run them on 127.0.0.1, and look at what they answer
// over HTTP. Nothing has to be installed beside Go, but for the tests of the page
// (tag browser), which want Chromium; a program that does not build fails the
// test with the command that builds it. The comparison with other stores is a
// program of its own, e2e/bench.
//
// Prometheus is pinned in a module of its own, e2e/prometheus, because its
// dependencies are not the adapter's. A cold build of it takes minutes, a warm
// one seconds; the build cache of Go is the only cache.
package e2e
