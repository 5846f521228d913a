// Package move tests how samples come in from other systems: what is imported from a real Prometheus is compared with it, sample by
// sample.
package move
