//go:build !race

package pebble_test

import (
	"testing"

	"github.com/promtable/promtable/bucketstore/storetest"
)

// TestConformance has one goroutine, beside those of Pebble. TestConcurrentConformance has several.
func TestConformance(t *testing.T) {
	for name, open := range conformingStores {
		t.Run(name, func(t *testing.T) { storetest.Run(t, open) })
	}
}
