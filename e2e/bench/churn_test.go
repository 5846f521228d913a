package main

import (
	"os"
	"testing"
)

// TestChurn runs the command churn with few series and samples, which it checks itself.
func TestChurn(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := runChurn(t.Context(), []string{"--active=500", "--days=10", "--interval=20m", "--index-series=2000"}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
