// Package page tests the page that the adapter serves, in a real Chromium. The tests
// are behind the build tag browser, for they alone need something beside Go:
//
//	go test -tags browser ./e2e/page
package page
