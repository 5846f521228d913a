// Package load tests an adapter under a load that does not end: heavy queries beside
// writes, and hours of writes, queries and new series.
package load
