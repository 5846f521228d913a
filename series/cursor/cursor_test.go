package cursor_test

import (
	"encoding/binary"
	"testing"

	"github.com/promtable/promtable/series/cursor"
)

// TestCursor: all parts come back, and of a text that was cut anywhere those that are there, and then zeros.
func TestCursor(t *testing.T) {
	text := binary.AppendVarint(binary.AppendUvarint([]byte{7}, 1<<40), -300)
	text = append(append(text, 1, 2, 3), 2, 'o', 'k')
	for size := range len(text) + 1 {
		c := cursor.Cursor{Rest: text[:size]}
		b, u, v, raw, sized := c.Byte(), c.Uvarint(), c.Varint(), c.Bytes(3), c.Sized()
		if whole := size == len(text); c.Failed == whole || len(c.Rest) > 0 {
			t.Errorf("%d bytes: failed %t, %d bytes are left", size, c.Failed, len(c.Rest))
		}
		if !c.Failed && (b != 7 || u != 1<<40 || v != -300 || string(raw) != "\x01\x02\x03" || string(sized) != "ok") {
			t.Errorf("read %d, %d, %d, %q, %q", b, u, v, raw, sized)
		}
		if c.Failed && (len(raw) != 3 || string(sized) != "" || size == 0 && (b != 0 || u != 0 || v != 0)) {
			t.Errorf("%d bytes: read %d, %d, %d, %q, %q", size, b, u, v, raw, sized)
		}
	}
	c := cursor.Cursor{Rest: []byte{1}}
	if c.Fail(); c.Byte() != 0 || !c.Failed {
		t.Error("it reads on")
	}
}
