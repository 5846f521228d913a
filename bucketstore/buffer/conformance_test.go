//go:build !race

package buffer_test

import (
	"testing"

	"github.com/promtable/promtable/bucketstore/storetest"
)

// TestConformance has one goroutine, beside those of the buffer. TestConcurrentConformance has several.
func TestConformance(t *testing.T) { storetest.Run(t, openConforming) }
