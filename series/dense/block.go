package dense

import (
	"encoding/binary"
	"math/bits"
)

// The head of a block: its width and what lists follow. They are part of the
// stored format.
const (
	// blockLen is how many residuals a block has, but for the last of a
	// sequence.
	blockLen = 128

	maxWidth  = 56 // up to here eight bytes hold the bits of a residual from any bit of the first byte on
	fullWidth = 57 // in the head stands for 64

	blockSparse   = 0x40 // a bitmap of the residuals that are not 0 follows, the others are left out
	blockOutliers = 0x80 // a list of residuals that are too long for the width follows

	minBlockSize = 2 // head and lowest

	// outlierRatio is how many mean deviations the residuals reach at least
	// before outliers are looked for among them.
	outlierRatio = 8

	// fewResiduals are always looked at for outliers.
	fewResiduals = 32
)

// blockPlan is how a block is packed: each residual as its distance from the
// lowest, in width bits, but for outliers, which are those that are farther than
// 2^reach from middle.
type blockPlan struct {
	lowest, middle int64
	width, reach   int
	outliers       int
	bits           int // estimated size of residuals and outliers
}

// appendBlock appends up to blockLen residuals.
func appendBlock(dst []byte, r []int64) []byte {
	p, zeros := planBlock(r)
	head := byte(min(p.width, fullWidth))
	var kept [blockLen]int64
	var bitmap []byte
	if zeros > 0 && p.bits > 2*len(r) {
		var ones [blockLen / 8]byte
		n := dropZeros(&kept, &ones, r)
		sparse, _ := planBlock(kept[:n])
		if sparse.bits+len(r) < p.bits {
			p, r, bitmap = sparse, kept[:n], ones[:(len(r)+7)/8]
			head = byte(min(p.width, fullWidth)) | blockSparse
		}
	}
	if p.outliers > 0 {
		head |= blockOutliers
	}
	dst = append(dst, head)
	dst = binary.AppendVarint(dst, p.lowest)
	dst = append(dst, bitmap...)
	if p.outliers > 0 {
		dst = appendOutliers(dst, r, p)
	}
	return appendPacked(dst, r, p)
}

// planBlock also counts the zeros among the residuals.
func planBlock(r []int64) (p blockPlan, zeros int) {
	middle := typicalOf(r)
	lowest, highest, deviation := r[0], r[0], uint64(0)
	for _, v := range r {
		lowest, highest = min(lowest, v), max(highest, v)
		d := v - middle
		deviation += uint64(d ^ d>>63)
		if v == 0 {
			zeros++
		}
	}
	reach := uint64(highest - lowest)
	width := widthOf(reach)
	p = blockPlan{lowest: lowest, middle: middle, width: width, reach: 64, bits: len(r) * width}
	// Outliers reach far beyond the mean deviation, whose sum is right up to
	// maxWidth.
	if width > 2 && (width > maxWidth || len(r) < fewResiduals || deviation < reach/outlierRatio*uint64(len(r))) {
		p.exclude(r)
	}
	return p, zeros
}

// exclude makes outliers of the longest residuals if that makes the block smaller.
func (p *blockPlan) exclude(r []int64) {
	var counts [65]uint8 // up to blockLen
	for _, v := range r {
		counts[bitLen(v-p.middle)]++
	}
	longest := p.width
	outliers, size, all := 0, 0, p.bits
	for reach := 64; reach > 0; reach-- {
		if n := int(counts[reach]); n > 0 {
			outliers += n
			size += n * (8 + 8*varintLen(reach+1))
		}
		// Those within the reach have a sign and reach-1 bits.
		if width := reach; width < longest && size+8+width*len(r) < p.bits && outliers > 0 && outliers < len(r) {
			p.reach, p.outliers = reach-1, outliers
			p.bits = size + 8 + width*len(r)
		}
	}
	if p.bits < all {
		p.narrow(r)
	}
}

// varintLen is the size in bytes of a varint of so many bits, the sign included.
func varintLen(bits int) int { return (bits + 6) / 7 }

// narrow sets lowest and width to those of the residuals that are no outliers.
func (p *blockPlan) narrow(r []int64) {
	first := true
	var lowest, highest int64
	for _, v := range r {
		switch {
		case p.isOutlier(v):
		case first:
			lowest, highest, first = v, v, false
		default:
			lowest, highest = min(lowest, v), max(highest, v)
		}
	}
	width := widthOf(uint64(highest - lowest))
	p.bits += (width - p.reach - 1) * len(r)
	p.lowest, p.width = lowest, width
}

func (p *blockPlan) isOutlier(v int64) bool { return bitLen(v-p.middle) > p.reach }

// widthOf is the width of a residual whose distance from the lowest is d.
func widthOf(d uint64) int {
	if width := bits.Len64(d); width <= maxWidth {
		return width
	}
	return 64
}

// dropZeros moves the residuals that are not 0 to kept, and returns how many
// there are. It sets a bit for each.
func dropZeros(kept *[blockLen]int64, ones *[blockLen / 8]byte, r []int64) int {
	n := 0
	for i, v := range r {
		if v != 0 {
			kept[n] = v
			ones[i/8] |= 1 << (i % 8)
			n++
		}
	}
	return n
}

// appendOutliers appends the outliers and sets them to the lowest in r.
func appendOutliers(dst []byte, r []int64, p blockPlan) []byte {
	dst = append(dst, byte(p.outliers))
	for i, v := range r {
		if p.isOutlier(v) {
			dst = binary.AppendVarint(append(dst, byte(i)), v-p.lowest)
			r[i] = p.lowest
		}
	}
	return dst
}

// appendPacked appends the distances of r from the lowest, each in so many bits,
// the first in the lowest of the first byte.
func appendPacked(dst []byte, r []int64, p blockPlan) []byte {
	switch p.width {
	case 0:
		return dst
	case 64:
		for _, v := range r {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v-p.lowest))
		}
		return dst
	}
	var acc uint64
	filled := 0
	for _, v := range r {
		u := uint64(v - p.lowest)
		acc |= u << (filled & 63)
		if filled += p.width; filled >= 64 {
			dst = binary.LittleEndian.AppendUint64(dst, acc)
			filled -= 64
			acc = u >> ((p.width - filled) & 63)
		}
	}
	for ; filled > 0; filled -= 8 {
		dst = append(dst, byte(acc))
		acc >>= 8
	}
	return dst
}

// readBlock reads as many residuals as block has, or says that they are not
// there.
func (d *decoder) readBlock(block []int64) bool {
	head := d.Byte()
	lowest := d.Varint()
	width := int(head &^ (blockSparse | blockOutliers))
	if width == fullWidth {
		width = 64
	} else if width > fullWidth {
		return false
	}
	packed := block
	var bitmap []byte
	if head&blockSparse != 0 {
		n := 0
		if bitmap, n = d.bitmap(len(block)); n == 0 {
			return false
		}
		packed = block[:n]
	}
	var outliers []byte
	if head&blockOutliers != 0 {
		outliers = d.outliers()
	}
	size := (len(packed)*width + 7) / 8
	if d.Failed || len(d.Rest) < size {
		return false
	}
	unpack(packed, d.Rest, width, lowest)
	d.Rest = d.Rest[size:]
	if len(outliers) > 0 && !putOutliers(packed, outliers, lowest) {
		return false
	}
	if bitmap != nil {
		spread(block, len(packed), bitmap)
	}
	return true
}

// unpack reads residuals of so many bits from the front of b, which has more of
// them than enough or just enough.
func unpack(r []int64, b []byte, width int, lowest int64) {
	switch width {
	case 0:
		for i := range r {
			r[i] = lowest
		}
		return
	case 64:
		for i := range r {
			r[i] = lowest + int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
		return
	}
	// The last ones have not eight bytes to read from: those are read from
	// a copy that has.
	fast := 0
	if len(b) >= 8 {
		fast = min(len(r), (8*(len(b)-8)+7)/width+1)
	}
	unpackWide(r[:fast], b, 0, width, lowest)
	if fast < len(r) {
		var tail [16]byte
		bit := fast * width
		copy(tail[:], b[bit/8:])
		unpackWide(r[fast:], tail[:], bit%8, width, lowest)
	}
}

// unpackWide reads residuals from a bit of b on. There are eight bytes in b from
// the first byte of each on.
func unpackWide(r []int64, b []byte, bit, width int, lowest int64) {
	mask := uint64(1)<<width - 1
	for i := range r {
		u := binary.LittleEndian.Uint64(b[bit>>3:]) >> (bit & 7)
		r[i] = lowest + int64(u&mask)
		bit += width
	}
}

// bitmap returns the next n bits, as bytes, and how many of them are set. Others
// must not be.
func (d *decoder) bitmap(n int) (bitmap []byte, ones int) {
	size := (n + 7) / 8
	if len(d.Rest) < size {
		d.Fail()
		return nil, 0
	}
	bitmap, d.Rest = d.Rest[:size], d.Rest[size:]
	for _, c := range bitmap {
		ones += bits.OnesCount8(c)
	}
	if n%8 != 0 && bitmap[size-1]>>(n%8) != 0 {
		d.Fail()
	}
	return bitmap, ones
}

// outliers skips a list of outliers and returns its bytes, checked but for the
// positions.
func (d *decoder) outliers() []byte {
	count := d.Byte()
	start := d.Rest
	for range count {
		d.Byte()
		d.Uvarint()
	}
	return start[:len(start)-len(d.Rest)]
}

// putOutliers puts the residuals of a list that outliers has checked into r.
func putOutliers(r []int64, list []byte, lowest int64) bool {
	for len(list) > 0 {
		i := int(list[0])
		v, n := binary.Varint(list[1:])
		if i >= len(r) {
			return false
		}
		r[i] = lowest + v
		list = list[1+n:]
	}
	return true
}

// spread moves the first n of r to where bits are set, and zeros elsewhere.
func spread(r []int64, n int, bitmap []byte) {
	for i := len(r) - 1; i >= 0; i-- {
		if bitmap[i/8]>>(i%8)&1 == 0 {
			r[i] = 0
			continue
		}
		n--
		r[i] = r[n]
	}
}
