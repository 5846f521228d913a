package series

import (
	"errors"
	"fmt"
)

// ErrCorrupt marks stored bytes that no version of this format writes.
var ErrCorrupt = errors.New("corrupt")

// appendEscaped appends text in the escaped form of a field. In label names,
// and only there, '=' is escaped too.
func appendEscaped(dst []byte, text string, isName bool) []byte {
	from := 0
	for i := 0; i < len(text); i++ {
		if isPlain(text[i], isName) {
			continue
		}
		escape := text[i]
		switch escape {
		case '\n':
			escape = 'n'
		case 0:
			escape = '0'
		}
		dst = append(append(dst, text[from:i]...), '\\', escape)
		from = i + 1
	}
	return append(dst, text[from:]...)
}

// parseEscaped is the inverse of appendEscaped. It refuses every form that
// appendEscaped does not write. Without escapes the result is field itself.
func parseEscaped(field string, isName bool) (string, error) {
	clean := 0
	for clean < len(field) && isPlain(field[clean], isName) {
		clean++
	}
	if clean == len(field) {
		return field, nil
	}
	text := append(make([]byte, 0, len(field)), field[:clean]...)
	for i := clean; i < len(field); i++ {
		c := field[i]
		if isPlain(c, isName) {
			text = append(text, c)
			continue
		}
		if c != '\\' {
			return "", fmt.Errorf("%w: %q has an unescaped %q", ErrCorrupt, field, c)
		}
		i++
		switch {
		case i == len(field):
			return "", fmt.Errorf("%w: %q ends in an escape", ErrCorrupt, field)
		case field[i] == '\\' || field[i] == ',' || (field[i] == '=' && isName):
			text = append(text, field[i])
		case field[i] == 'n':
			text = append(text, '\n')
		case field[i] == '0':
			text = append(text, 0)
		default:
			return "", fmt.Errorf("%w: %q has an unknown escape", ErrCorrupt, field)
		}
	}
	return string(text), nil
}

// isPlain says whether c stands for itself in an escaped field.
func isPlain(c byte, isName bool) bool {
	return c != '\\' && c != ',' && c != '\n' && c != 0 && (c != '=' || !isName)
}

// cutField returns what is before the first unescaped comma and what is after
// it. more says whether there was one.
func cutField[T []byte | string](b T) (field, rest T, more bool) {
	i := indexUnescaped(b, ',')
	if i < 0 {
		return b, b[len(b):], false
	}
	return b[:i], b[i+1:], true
}

// indexUnescaped returns where c first stands in b outside an escape, or -1.
func indexUnescaped[T []byte | string](b T, c byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case c:
			return i
		}
	}
	return -1
}

// cutLastField returns what is before the last unescaped comma and what is
// after it. more says whether there was one.
func cutLastField[T []byte | string](b T) (rest, field T, more bool) {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != ',' {
			continue
		}
		escapes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			escapes++
		}
		if escapes%2 == 0 {
			return b[:i], b[i+1:], true
		}
	}
	return b[:0], b, false
}
