// Package harness builds and runs the programs of the end-to-end tests: the adapter,
// Google's emulator of Bigtable, and a real Prometheus. It writes to them and reads from
// them over HTTP, on 127.0.0.1. What only one folder of tests needs is not here. It imports
// none of the adapter's packages.
//
// Nothing has to be installed beside Go. A program that does not build fails the
// test with the command that builds it. Prometheus is pinned in a module of its
// own, e2e/prometheus, because its dependencies are not the adapter's; so are the
// compliance suite and VictoriaMetrics, which only e2e/bench runs. A cold build of Prometheus takes minutes, a warm one seconds.
//
// The tests lie beside this package, in a folder for each theme. The comparison
// with other stores, e2e/bench, uses what needs no testing.TB, and returns errors.
package harness
