// Package bigtable tests what only Bigtable has: its store against the contract of stores,
// sealing by several adapters, and the row mutations that cost money. Three of its files
// call the adapter's packages, as package project lists.
package bigtable
