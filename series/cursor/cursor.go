// Package cursor reads the parts of stored bytes, one after the other.
package cursor

import "encoding/binary"

// A Cursor cuts parts from the front of Rest. After a part that is not there Failed is set, Rest is empty, and all that follows is zero.
type Cursor struct {
	Rest   []byte
	Failed bool
}

// Byte returns the next byte.
func (c *Cursor) Byte() byte {
	if len(c.Rest) == 0 {
		c.Fail()
		return 0
	}
	b := c.Rest[0]
	c.Rest = c.Rest[1:]
	return b
}

// Bytes returns the next n bytes, or zeros; n is not more than eight.
func (c *Cursor) Bytes(n int) []byte {
	if len(c.Rest) < n {
		c.Fail()
		return make([]byte, 8)[:n]
	}
	b := c.Rest[:n]
	c.Rest = c.Rest[n:]
	return b
}

// Uvarint returns the next unsigned integer.
func (c *Cursor) Uvarint() uint64 {
	v, n := binary.Uvarint(c.Rest)
	c.skip(n)
	return v
}

// Varint returns the next signed integer.
func (c *Cursor) Varint() int64 {
	v, n := binary.Varint(c.Rest)
	c.skip(n)
	return v
}

// Sized returns the bytes that follow their size.
func (c *Cursor) Sized() []byte {
	size := c.Uvarint()
	if size > uint64(len(c.Rest)) {
		c.Fail()
		return nil
	}
	b := c.Rest[:size:size]
	c.Rest = c.Rest[size:]
	return b
}

func (c *Cursor) skip(n int) {
	if n <= 0 {
		c.Fail()
		return
	}
	c.Rest = c.Rest[n:]
}

// Fail ends reading: something is not what it should be.
func (c *Cursor) Fail() { c.Rest, c.Failed = nil, true }
