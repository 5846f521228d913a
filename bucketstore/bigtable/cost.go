package bigtable

const (
	// NodeRowReads is how many rows of 1 KB an SSD node reads in a second, each by its key.
	// Google's page on the performance of Bigtable has said 10,000, 14,000 and up to 17,000
	// over the years: the least of these is the safe one to plan with.
	NodeRowReads = 10_000
	// NodeScanBytes is how many bytes an SSD node scans in a second, by the same page.
	NodeScanBytes = 220_000_000
	// NodeRowWrites is how many rows of 1 KB an SSD or HDD node writes in a second, by the same
	// page, the least of what it has said.
	NodeRowWrites = 10_000
	// NodeSSDBytes and NodeHDDBytes are how many bytes a node may store: see
	// https://cloud.google.com/bigtable/quotas.
	NodeSSDBytes = 5e12
	NodeHDDBytes = 16e12
	// scannedRowBytes is what a row of INDEX, which has hardly more than a key, counts for in a
	// scan: the rows of that page have so many bytes.
	scannedRowBytes = 1_000
)

// NodeSeconds returns for how many seconds a read would keep an SSD node busy: a rough figure,
// to compare queries by. rows are those of METRIC, each of which is found by its key, and bytes
// are theirs; indexRows are those of INDEX, one next to the other.
func NodeSeconds(rows, indexRows, bytes int64) float64 {
	return float64(rows)/NodeRowReads + float64(bytes+indexRows*scannedRowBytes)/NodeScanBytes
}
