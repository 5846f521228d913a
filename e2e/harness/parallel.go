package harness

import (
	"flag"
	"testing"
)

// RunWaiting is for the TestMain of a package whose parallel tests mostly wait for processes: six of them run at once, unless -parallel says otherwise.
func RunWaiting(m *testing.M) int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	return m.Run()
}
