package rules

import (
	"os"
	"testing"

	"github.com/promtable/promtable/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.RunWaiting(m)) }
