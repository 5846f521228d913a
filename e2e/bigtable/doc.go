// Package bigtable tests what is particular to Bigtable: its store against the
// contract of stores, sealing by several adapters, and the row mutations that are
// paid for. Three of its files call the adapter's packages, as package project lists.
package bigtable
