// Package durability tests what an adapter keeps when it is killed, when its log is
// damaged, and when it is started with another store or another log.
package durability
