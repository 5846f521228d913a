package wire

import (
	"testing"

	"github.com/promtable/promtable/remote/ingest"
	"github.com/promtable/promtable/remote/wire/wiretest"
)

// BenchmarkDecode decodes 2,000 series of 12 labels and one sample: cached by an
// engine, or new to it.
func BenchmarkDecode(b *testing.B) {
	const series = 2000
	all := wiretest.Targets(series)
	for _, version := range []struct {
		name    string
		version int
		body    []byte
	}{
		{"1.0", 1, wiretest.V1(b, all...)},
		{"2.0", 2, wiretest.Marshal(b, wiretest.ToV2(all))},
	} {
		repeat := newRepeater(b)
		for _, bench := range []struct {
			name string
			d    testDecoder
		}{
			{"cached", repeat.decoders[version.version]},
			{"new", newDecoder(version.version, noCache{}, 32<<20)},
		} {
			b.Run(version.name+"/"+bench.name, func(b *testing.B) {
				decode := func(store bool) {
					var rejected ingest.Rejected
					req, err := bench.d.Decode(version.body, &rejected)
					if err != nil || req.Size != series {
						b.Fatalf("%d samples, error %v", req.Size, err)
					}
					if store {
						if _, err := repeat.engine.Append(b.Context(), req.Series, &rejected); err != nil {
							b.Fatal(err)
						}
					}
					bench.d.Release()
				}
				decode(true)
				b.SetBytes(int64(len(version.body)))
				b.ReportAllocs()
				for b.Loop() {
					decode(false)
				}
			})
		}
	}
}
