package downsample_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if goroutines are left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
