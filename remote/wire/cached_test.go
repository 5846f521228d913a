package wire

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtable/promtable/remote/engine"
	"github.com/promtable/promtable/remote/engine/seriescache"
	"github.com/promtable/promtable/remote/ingest"
)

// randomPairs are label sets, names and values in turn, that differ here and
// there, sent in several orders.
func randomPairs(r *rand.Rand) (sets [][]string) {
	values := []string{"", "a", "b", "ab", strings.Repeat("x", 126), strings.Repeat("x", 127), strings.Repeat("x", 128), strings.Repeat("x", 300), "ключ"}
	for range 30 {
		set := []string{"__name__", fmt.Sprint("m", r.IntN(3))}
		for i := range r.IntN(6) {
			set = append(set, fmt.Sprint("l", i), values[r.IntN(len(values))])
		}
		if r.IntN(4) == 0 {
			set = append(set[2:], set[:2]...)
		}
		sets = append(sets, set)
	}
	wide := []string{"__name__", "wide"}
	for i := range 100 {
		wide = append(wide, fmt.Sprintf("l%03d", i), "v")
	}
	other := slices.Clone(wide)
	other[199] = "w"
	return append(sets, wide, other)
}

// randomRequest is some of sets, mostly in their order, in both protocols.
func randomRequest(r *rand.Rand, sets [][]string, at int64) (v1, v2 []byte) {
	symbols := writev2.NewSymbolTable()
	for _, i := range r.Perm(40) { // the numbers are new in each request
		symbols.Symbolize(fmt.Sprint("l", i))
	}
	req2 := &writev2.Request{}
	for i := r.IntN(3); i < len(sets); i += 1 + r.IntN(2) {
		set := sets[i]
		if r.IntN(8) == 0 {
			set = sets[r.IntN(len(sets))]
		}
		one := prompb.TimeSeries{}
		two := writev2.TimeSeries{}
		for i := 0; i < len(set); i += 2 {
			one.Labels = append(one.Labels, prompb.Label{Name: set[i], Value: set[i+1]})
			two.LabelsRefs = append(two.LabelsRefs, symbols.Symbolize(set[i]), symbols.Symbolize(set[i+1]))
		}
		var more []byte
		switch r.IntN(12) {
		case 0:
			one.Exemplars = []prompb.Exemplar{{Timestamp: at, Value: 1}}
			two.Exemplars = []writev2.Exemplar{{Timestamp: at, Value: 1}}
		case 1:
			one.Histograms = []prompb.Histogram{{Timestamp: at}}
			two.Histograms = []writev2.Histogram{{Timestamp: at}}
		case 2: // nothing
		case 3: // a label after the sample
			more, _ = proto.Marshal(&prompb.TimeSeries{Labels: []prompb.Label{{Name: "more", Value: fmt.Sprint(r.IntN(3))}}})
			two.LabelsRefs = two.LabelsRefs[:len(two.LabelsRefs)-1]
			fallthrough
		default:
			one.Samples = []prompb.Sample{{Timestamp: at, Value: float64(i)}}
			two.Samples = []writev2.Sample{{Timestamp: at, Value: float64(i), StartTimestamp: int64(r.IntN(2))}}
		}
		if r.IntN(20) == 0 {
			two.LabelsRefs[0] = 100_000
		}
		msg, err := proto.Marshal(&one)
		if err != nil {
			panic(err)
		}
		v1 = protoField(v1, 1, append(msg, more...))
		req2.Timeseries = append(req2.Timeseries, two)
	}
	req2.Symbols = symbols.Symbols()
	v2, err := proto.Marshal(req2)
	if err != nil {
		panic(err)
	}
	return v1, v2
}

// protoField appends a length-delimited field.
func protoField(dst []byte, num byte, msg []byte) []byte {
	return append(append(append(dst, num<<3|byte(protowire.BytesType)), proto.EncodeVarint(uint64(len(msg)))...), msg...)
}

// TestDecodeCached: cached series change nothing of what is decoded,
// whatever came before.
func TestDecodeCached(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	sets := randomPairs(r)
	again := newRepeater(t)
	for range 100 {
		v1, v2 := randomRequest(r, sets, time.Now().UnixMilli())
		for version := 1; version <= 2; version++ {
			body := v1
			if version == 2 {
				body = v2
			}
			var rejected ingest.Rejected
			req, err := decode(version, body, &rejected)
			if err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			if again.check(t, version, body, checkDecoded(t, req), &rejected); t.Failed() {
				t.FailNow()
			}
		}
		if r.IntN(3) == 0 {
			i, j := r.IntN(len(sets)), r.IntN(len(sets))
			sets[i], sets[j] = sets[j], sets[i]
		}
	}
}

// oddRequests are requests of 2.0 that are valid, in unusual encodings.
func oddRequests() map[string][]byte {
	request := func(symbols []string, series ...[]byte) (body []byte) {
		for _, s := range symbols {
			body = protoField(body, 4, []byte(s))
		}
		for _, s := range series {
			body = protoField(body, 5, s)
		}
		return body
	}
	up := []string{"", "__name__", "up", "job", "a", "up", "__name__", "", "b"}
	sample := []byte{2<<3 | byte(protowire.BytesType), 2, 2<<3 | byte(protowire.VarintType), 1}
	series := func(parts ...[]byte) []byte { return slices.Concat(append(parts, sample)...) }
	refs := func(packed ...byte) []byte { return protoField(nil, 1, packed) }
	many := slices.Clone(up)
	for i := range 20_000 {
		many = append(many, fmt.Sprint(i))
	}
	return map[string][]byte{
		"symbols that are there twice":    request(up, series(refs(1, 2, 3, 4)), series(refs(6, 5, 3, 4)), series(refs(6, 2, 3, 4)), series(refs(1, 5, 3, 8))),
		"empty values":                    request(up, series(refs(1, 2, 3, 0)), series(refs(1, 2, 3, 7)), series(refs(1, 2)), series(refs(1, 2, 3, 4))),
		"the same in another order":       request(up, series(refs(1, 2, 3, 4)), series(refs(3, 4, 1, 2)), series(refs(3, 4, 6, 5))),
		"no order at all":                 request(up, series(refs(1, 2)), series(refs(2, 1)), series(refs(1, 2))),
		"references in parts":             request(up, series(refs(1, 2), refs(3, 4)), series(refs(1, 2, 3), refs(4)), series(refs(1), refs(), refs(2, 3, 4)), series(refs(), refs(1, 2, 3, 8))),
		"references that are not packed":  request(up, series([]byte{1 << 3, 1, 1 << 3, 2}), series([]byte{1 << 3, 1}, refs(2, 3, 4)), series(refs(1, 2), []byte{1 << 3, 3, 1 << 3, 4})),
		"references after the samples":    request(up, slices.Concat(sample, refs(1, 2)), slices.Concat(refs(1, 2), sample, refs(3, 4)), slices.Concat(refs(1, 2), sample, refs(3, 9))),
		"references longer than needed":   request(up, series(refs(0x81, 0, 0x82, 0x80, 0)), series(refs(0x81, 0x80, 0x80, 0, 2, 0x83, 0, 4))),
		"references of three bytes":       request(many, series(refs(1, 2, 3, 0x80, 0x80, 1)), series(refs(1, 2, 3, 0x81, 0x80, 1)), series(refs(1, 2, 3, 0xff, 0x7f))),
		"references to nothing":           request(up, series(refs(1, 9)), series(refs(1, 0x80, 1)), series(refs(1)), series(refs()), series(), series(refs(1, 2))),
		"references that are cut":         request(up, series(refs(1, 2)), series(refs(1, 0x80))),
		"a series without anything":       request(up, series(refs(1, 2)), refs(1, 2), series(refs(1, 2))),
		"metadata, empty and not":         request(up, series(refs(1, 2), []byte{5<<3 | byte(protowire.BytesType), 0}), series(refs(1, 2), []byte{5<<3 | byte(protowire.BytesType), 2, 1 << 3, 1}), series(refs(1, 2), []byte{5<<3 | byte(protowire.BytesType), 2, 3 << 3, 99})),
		"the symbols after the series":    append(request(nil, series(refs(1, 2, 3, 4))), request(up)...),
		"labels longer than a series key": request(append(slices.Clone(up), strings.Repeat("x", 3000), strings.Repeat("y", 3000), strings.Repeat("z", 3000)), series(refs(1, 2, 9, 10)), series(refs(1, 2, 9, 10, 11, 10))),
	}
}

// TestDecodeOdd: unusual encodings are decoded alike, whether series are cached or not.
func TestDecodeOdd(t *testing.T) {
	for name, body := range oddRequests() {
		t.Run(name, func(t *testing.T) {
			again := newRepeater(t)
			var rejected ingest.Rejected
			req, err := decode(2, body, &rejected)
			if err != nil {
				checkBadRequest(t, err)
				for range 3 {
					if _, err := decodeWith(again.decoders[2], body, &ingest.Rejected{}); err == nil {
						t.Error("decoded after it was refused")
					}
					again.release(2)
				}
				return
			}
			again.check(t, 2, body, checkDecoded(t, req), &rejected)
		})
	}
}

// slowFinder is what a decoder has that began long ago: symbols that may have
// ended.
type slowFinder struct {
	*engine.Engine
	symbols *seriescache.SymbolTable
}

func (f slowFinder) Symbols() *seriescache.SymbolTable { return f.symbols }

// TestDecodeEpochs: when symbols get new numbers, of which some have been those
// of others, or none, each sample still goes to its own series.
func TestDecodeEpochs(t *testing.T) {
	const room = 30
	for _, test := range []struct {
		name          string
		current, slow bool
		minEpochs     uint32
	}{
		{"the current one", true, false, 5},
		{"one that has ended", false, true, 2},
		{"both", true, true, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			again := newSmallRepeater(t, room*70)
			var decoders []testDecoder
			if test.current {
				decoders = append(decoders, again.decoders[2])
			}
			if test.slow {
				decoders = append(decoders, newDecoder(2, slowFinder{again.engine, again.engine.Symbols()}, fuzzMaxBody))
			}
			cached := 0
			for range 300 {
				body := manySymbols(r, 2*room)
				want, err := decode(2, body, &ingest.Rejected{})
				if err != nil {
					t.Fatal(err)
				}
				wantText := checkDecoded(t, want)
				for range 2 {
					var rejected ingest.Rejected
					d := decoders[r.IntN(len(decoders))]
					got, err := decodeWith(d, body, &rejected)
					if err != nil {
						t.Fatal(err)
					}
					if text := checkDecoded(t, got); !slices.Equal(text, wantText) {
						t.Fatalf("decoded\n%q\nwant\n%q", text, wantText)
					}
					for _, s := range got.Series {
						if s.Cached != nil {
							cached++
						}
					}
					if _, err := again.engine.Append(t.Context(), got.Series, &rejected); err != nil || rejected.Err() != nil {
						t.Fatal(err, rejected.Err())
					}
					d.Release()
				}
			}
			if epoch := again.engine.Symbols().Epoch(); cached < 500 || epoch < test.minEpochs {
				t.Errorf("%d series were cached in %d epochs, want more of both", cached, epoch)
			}
		})
	}
}

// manySymbols is a request of up to 20 series that have one of so many names.
func manySymbols(r *rand.Rand, names int) []byte {
	req, symbols := writev2.Request{}, writev2.NewSymbolTable()
	for range 1 + r.IntN(20) {
		req.Timeseries = append(req.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{
				symbols.Symbolize("__name__"), symbols.Symbolize(fmt.Sprint("m", r.IntN(names))),
				symbols.Symbolize("job"), symbols.Symbolize(fmt.Sprint("j", r.IntN(2))),
			},
			Samples: []writev2.Sample{{Timestamp: time.Now().UnixMilli(), Value: r.Float64()}},
		})
	}
	req.Symbols = symbols.Symbols()
	body, err := proto.Marshal(&req)
	if err != nil {
		panic(err)
	}
	return body
}

// TestFastVarint: it is binary.Uvarint, whatever there is.
func TestFastVarint(t *testing.T) {
	var all [][]byte
	for bits := range 64 {
		for _, n := range []uint64{1<<bits - 1, 1 << bits, 1<<bits + 1, 0xaaaa_aaaa_aaaa_aaaa >> bits, uint64(time.Now().UnixMilli()) << bits} {
			all = append(all, binary.AppendUvarint(nil, n))
		}
	}
	for _, b := range all {
		long := slices.Clone(b) // one byte longer than needed
		long[len(long)-1] |= 0x80
		for _, b := range [][]byte{b, append(slices.Clone(b), 0xff, 0x80, 1), b[:len(b)-1], append(long, 0)} {
			got, n := fastVarint(b)
			if want, wantN := binary.Uvarint(b); got != want || n != wantN {
				t.Errorf("% x is %d of %d bytes, want %d of %d", b, got, n, want, wantN)
			}
		}
	}
}

// TestDecodeAllocatesNothing: what a request of cached series allocates does not
// grow with it.
func TestDecodeAllocatesNothing(t *testing.T) {
	again := newRepeater(t)
	req := prompb.WriteRequest{}
	symbols := writev2.NewSymbolTable()
	req2 := writev2.Request{}
	for i := range 3000 {
		id := fmt.Sprint(i)
		sample := prompb.Sample{Timestamp: time.Now().UnixMilli(), Value: 1}
		req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
			Labels:  []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "id", Value: id}},
			Samples: []prompb.Sample{sample, sample},
		})
		req2.Timeseries = append(req2.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{symbols.Symbolize("__name__"), symbols.Symbolize("up"), symbols.Symbolize("id"), symbols.Symbolize(id)},
			Samples:    []writev2.Sample{{Timestamp: sample.Timestamp, Value: 1, StartTimestamp: 1}, {Timestamp: sample.Timestamp, Value: 1}},
			Metadata:   writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize("help")},
		})
	}
	req2.Symbols = symbols.Symbols()
	for name, test := range map[string]struct {
		version int
		msg     proto.Message
	}{"1.0": {1, &req}, "2.0": {2, &req2}} {
		t.Run(name, func(t *testing.T) {
			body, err := proto.Marshal(test.msg)
			if err != nil {
				t.Fatal(err)
			}
			once := func() WriteRequest {
				var rejected ingest.Rejected
				d := again.decoders[test.version]
				req, err := d.Decode(body, &rejected)
				if err == nil {
					_, err = again.engine.Append(t.Context(), req.Series, &rejected)
				}
				if err == nil && len(req.Metadata) > 0 {
					err = again.engine.AppendMetadata(t.Context(), req.Metadata, &rejected)
				}
				if err != nil || rejected.Err() != nil || !d.Release() {
					t.Fatalf("error %v, rejected %v", err, rejected.Err())
				}
				return req
			}
			once()
			once() // now the cache has the metadata of the series
			if n := testing.AllocsPerRun(10, func() { once() }); n > 50 {
				t.Errorf("%v allocations for 6000 samples of 3000 cached series", n)
			}
			if req := once(); len(req.Metadata) > 0 || (name == "2.0" && req.Repeated != 3000) {
				t.Errorf("%d entries of metadata, %d left out", len(req.Metadata), req.Repeated)
			}
		})
	}
}

// recorder remembers what was found.
type recorder struct {
	*engine.Engine
	entries map[ingest.Cached]*seriescache.Entry
}

func (r recorder) Lookup(text ingest.WireText) *seriescache.Entry {
	found := r.Engine.Lookup(text)
	if found != nil {
		r.entries[found.State] = found
	}
	return found
}

// TestDecodePrefix: a series whose labels begin like those of another, which
// came at its position before, is cached soon.
func TestDecodePrefix(t *testing.T) {
	again := newRepeater(t)
	found := recorder{again.engine, make(map[ingest.Cached]*seriescache.Entry)}
	decoder := newDecoder(1, found, fuzzMaxBody)
	at := time.Now().UnixMilli()
	send := func(sets ...[]prompb.Label) (cached int) {
		t.Helper()
		req := prompb.WriteRequest{}
		for _, set := range sets {
			req.Timeseries = append(req.Timeseries, prompb.TimeSeries{Labels: set, Samples: []prompb.Sample{{Timestamp: at}}})
		}
		body, err := proto.Marshal(&req)
		if err != nil {
			t.Fatal(err)
		}
		var rejected ingest.Rejected
		decoded, err := decodeWith(decoder, body, &rejected)
		if err == nil {
			_, err = again.engine.Append(t.Context(), decoded.Series, &rejected)
		}
		if err != nil || rejected.Err() != nil {
			t.Fatal(err, rejected.Err())
		}
		for i, s := range decoded.Series {
			if s.Cached == nil {
				continue
			}
			if cached++; i > 0 && decoded.Series[i-1].Cached != nil && found.entries[decoded.Series[i-1].Cached].Next() != found.entries[s.Cached] {
				t.Errorf("series %d is not expected after the one before it", i)
			}
		}
		decoder.Release()
		return cached
	}
	first := []prompb.Label{{Name: "__name__", Value: "a"}}
	short := []prompb.Label{{Name: "__name__", Value: "b"}, {Name: "job", Value: "c"}}
	long := append(slices.Clone(short), prompb.Label{Name: "node", Value: "d"})
	for i, step := range []struct {
		sets   [][]prompb.Label
		cached int
	}{
		{[][]prompb.Label{first, short}, 0},
		{[][]prompb.Label{first, short}, 2},
		{[][]prompb.Label{first, long}, 1},
		{[][]prompb.Label{first, long}, 2},
		{[][]prompb.Label{first, short}, 2},
		{[][]prompb.Label{first, long, short, first}, 4},
	} {
		if cached := send(step.sets...); cached != step.cached {
			t.Errorf("step %d: %d series cached, want %d", i, cached, step.cached)
		}
	}
}

// TestDecoderReleases: the memory of a large request is not kept, nor are the
// wire texts of any number of new series.
func TestDecoderReleases(t *testing.T) {
	for _, test := range []struct {
		name    string
		series  int
		samples int
		value   int // bytes of a label
		kept    bool
	}{
		{"usual", 2000, 1, 10, true},
		{"many series", 30_000, 1, 1, false},
		{"many samples", 1, 60_000, 1, false},
		{"long labels", 2000, 1, 3000, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := prompb.WriteRequest{}
			for i := range test.series {
				req.Timeseries = append(req.Timeseries, prompb.TimeSeries{
					Labels:  []prompb.Label{{Name: "__name__", Value: fmt.Sprint("m", i)}, {Name: "job", Value: strings.Repeat("x", test.value)}},
					Samples: make([]prompb.Sample, test.samples),
				})
			}
			body, err := proto.Marshal(&req)
			if err != nil {
				t.Fatal(err)
			}
			d := NewV1(32 << 20)
			d.Use(noCache{})
			if got, err := d.Decode(body, &ingest.Rejected{}); err != nil || got.Size != test.series*test.samples {
				t.Fatalf("%d samples, error %v", got.Size, err)
			}
			if n := cap(d.texts); n > 2*maxTexts {
				t.Errorf("%d bytes of texts", n)
			}
			if kept := d.Release(); kept != test.kept {
				t.Errorf("kept is %t, want %t", kept, test.kept)
			}
		})
	}
}
