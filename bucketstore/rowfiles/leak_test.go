package rowfiles_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain wants no goroutine to outlive the tests.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
