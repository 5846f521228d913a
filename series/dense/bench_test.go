package dense_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/promtable/promtable/series/dense"
	"github.com/promtable/promtable/series/seriestest"
	"github.com/promtable/promtable/series/xor"
)

// benchChunks are how many chunks of each shape are encoded in turn, so that
// branches are not learnt by heart, and zstd sees different ones.
const benchChunks = 64

// codec is one encoding of chunks, to compare.
type codec struct {
	name   string
	encode func(dst []byte, ts []int64, vs []float64) []byte
	decode func(data []byte, ts []int64, vs []float64) ([]int64, []float64, error)
}

func codecs(b *testing.B) []codec {
	upstreamEncode := func(dst []byte, ts []int64, vs []float64) []byte {
		return append(dst, seriestest.UpstreamXOR(b, ts, vs)...)
	}
	return []codec{
		{"dense", dense.Append, dense.Decode},
		{"xor", xor.Append, xor.Decode},
		{"upstream", upstreamEncode, upstreamDecode},
	}
}

func upstreamDecode(data []byte, ts []int64, vs []float64) ([]int64, []float64, error) {
	var c chunkenc.XORChunk
	c.Reset(data)
	it := c.Iterator(nil)
	for it.Next() == chunkenc.ValFloat {
		t, v := it.At()
		ts, vs = append(ts, t), append(vs, v)
	}
	return ts, vs, it.Err()
}

// benchShapes calls fn with benchChunks chunks of n samples of each shape.
func benchShapes(b *testing.B, n int, fn func(b *testing.B, chunks []seriestest.Samples)) {
	r := rand.New(rand.NewPCG(3, 4))
	byShape := map[string][]seriestest.Samples{}
	var names []string
	for range benchChunks {
		for _, c := range seriestest.Shapes(r, n) {
			if byShape[c.Name] == nil {
				names = append(names, c.Name)
			}
			byShape[c.Name] = append(byShape[c.Name], c)
		}
	}
	for _, name := range names {
		b.Run(name, func(b *testing.B) { fn(b, byShape[name]) })
	}
}

// BenchmarkChunkEncode reports the time and the bytes that a sample takes, before
// and after zstd.
func BenchmarkChunkEncode(b *testing.B) {
	for _, codec := range codecs(b) {
		for _, n := range []int{120, 500} {
			b.Run(fmt.Sprintf("%s/%d", codec.name, n), func(b *testing.B) {
				benchShapes(b, n, func(b *testing.B, chunks []seriestest.Samples) {
					b.ReportAllocs()
					var dst []byte
					samples := 0
					for i := 0; b.Loop(); i++ {
						c := chunks[i%len(chunks)]
						dst = codec.encode(dst[:0], c.Ts, c.Vs)
						samples += n
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
					reportSize(b, codec, chunks)
				})
			})
		}
	}
}

// BenchmarkChunkDecode reports the time that a sample takes.
func BenchmarkChunkDecode(b *testing.B) {
	for _, codec := range codecs(b) {
		for _, n := range []int{120, 500} {
			b.Run(fmt.Sprintf("%s/%d", codec.name, n), func(b *testing.B) {
				benchShapes(b, n, func(b *testing.B, chunks []seriestest.Samples) {
					b.ReportAllocs()
					data := make([][]byte, len(chunks))
					for i, c := range chunks {
						data[i] = codec.encode(nil, c.Ts, c.Vs)
					}
					var ts []int64
					var vs []float64
					var err error
					samples := 0
					for i := 0; b.Loop(); i++ {
						if ts, vs, err = codec.decode(data[i%len(data)], ts[:0], vs[:0]); err != nil {
							b.Fatal(err)
						}
						samples += n
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
				})
			})
		}
	}
}

// reportSize reports the bytes a sample of the chunks one after the other, and
// those after zstd, level 3, of blocks of 64 KB as a storage engine has.
func reportSize(b *testing.B, codec codec, chunks []seriestest.Samples) {
	var all []byte
	samples := 0
	for _, c := range chunks {
		all = codec.encode(all, c.Ts, c.Vs)
		samples += len(c.Ts)
	}
	b.ReportMetric(float64(len(all))/float64(samples), "B/sample")
	b.ReportMetric(float64(zstdSize(b, all))/float64(samples), "zstd-B/sample")
}

func zstdSize(b *testing.B, data []byte) int {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(3)), zstd.WithEncoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer enc.Close()
	size := 0
	for len(data) > 0 {
		block := data[:min(len(data), 64<<10)]
		size += len(enc.EncodeAll(block, nil))
		data = data[len(block):]
	}
	return size
}
