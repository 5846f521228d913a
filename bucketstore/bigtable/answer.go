package bigtable

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// errAnswer marks an answer that is no protobuf.
var errAnswer = errors.New("malformed answer to row mutations")

// Tags of the answer, see the ones of the request.
const (
	answerEntry   = 1<<3 | 2 // MutateRowsResponse.entries
	entryIndex    = 1<<3 | 0 // MutateRowsResponse.Entry.index
	entryStatus   = 2<<3 | 2 // MutateRowsResponse.Entry.status
	statusCode    = 1<<3 | 0 // google.rpc.Status.code
	statusMessage = 2<<3 | 2 // google.rpc.Status.message
)

// An answer gathers what the messages of one MutateRows stream say about its
// rows.
type answer struct {
	// confirmed says for each entry of the request whether it is stored.
	confirmed []bool
	// failed are the errors of the others, by position.
	failed map[int]error
}

// reset makes a ready for a request of n entries.
func (a *answer) reset(n int) {
	if cap(a.confirmed) < n {
		a.confirmed = make([]bool, n)
	}
	a.confirmed = a.confirmed[:n]
	clear(a.confirmed)
	a.failed = nil
}

// finish makes an error of each entry that no message was about.
func (a *answer) finish() {
	for i, ok := range a.confirmed {
		if !ok && a.failed[i] == nil {
			a.fail(i, status.Error(codes.Internal, "no answer about the row"))
		}
	}
}

// confirm notes that an entry is stored.
func (a *answer) confirm(i int) {
	a.confirmed[i] = true
	if a.failed != nil {
		delete(a.failed, i)
	}
}

// fail notes the error of an entry.
func (a *answer) fail(i int, err error) {
	if a.failed == nil {
		a.failed = make(map[int]error)
	}
	a.confirmed[i], a.failed[i] = false, err
}

// parse reads one message of the stream, and keeps nothing of it.
func (a *answer) parse(msg []byte) error {
	f := fields{rest: msg}
	for {
		f.rest = a.parseStored(f.rest)
		if !f.next() {
			return f.err
		}
		if f.tag != answerEntry {
			continue
		}
		if err := a.parseEntry(f.body); err != nil {
			return err
		}
	}
}

// parseStored reads entries as long as they only say that a row is stored, in the
// usual bytes, and returns the rest. It is for speed: such entries are nearly all.
func (a *answer) parseStored(b []byte) (rest []byte) {
	for len(b) >= 3 && b[0] == answerEntry && b[2] == entryIndex {
		index, n := protowire.ConsumeVarint(b[3:])
		end := 3 + n + 2
		if n < 0 || len(b) < end || int(b[1]) != end-2 || b[end-2] != entryStatus || b[end-1] != 0 || index >= uint64(len(a.confirmed)) {
			break
		}
		a.confirm(int(index))
		b = b[end:]
	}
	return b
}

// parseEntry reads what is said about one row. What is said about rows that the
// request does not have is ignored, as the client does.
func (a *answer) parseEntry(b []byte) error {
	var index uint64
	var st rowStatus
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case entryIndex:
			index = f.number
		case entryStatus:
			if err := st.parse(f.body); err != nil {
				return err
			}
		}
	}
	if f.err != nil || index >= uint64(len(a.confirmed)) {
		return f.err
	}
	switch i := int(index); {
	case !st.present:
		a.fail(i, status.Error(codes.Internal, "an answer about the row without its status"))
	case st.code == codes.OK:
		a.confirm(i)
	default:
		a.fail(i, status.Error(st.code, string(st.message)))
	}
	return nil
}

// A rowStatus is a google.rpc.Status.
type rowStatus struct {
	present bool
	code    codes.Code
	message []byte
}

// parse reads a status, or the next part of it: protobuf lets a message come in
// several.
func (s *rowStatus) parse(b []byte) error {
	s.present = true
	f := fields{rest: b}
	for f.next() {
		switch f.tag {
		case statusCode:
			s.code = codes.Code(uint32(f.number))
		case statusMessage:
			s.message = f.body
		}
	}
	return f.err
}

// fields walks over the fields of a message.
type fields struct {
	rest []byte
	// tag is that of the field: its number and its type.
	tag uint64
	// number is the value of a varint, body that of a field of bytes.
	number uint64
	body   []byte
	// err is why the walk has ended before the end of the message.
	err error
}

// next goes to the next field and says whether there is one.
func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(f.rest)
	if n < 0 {
		return f.fail(n)
	}
	f.rest = f.rest[n:]
	switch typ {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		f.body, n = protowire.ConsumeBytes(f.rest)
	default:
		n = protowire.ConsumeFieldValue(num, typ, f.rest)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.rest, f.tag = f.rest[n:], protowire.EncodeTag(num, typ)
	return true
}

// fail ends the walk with an error of protowire.
func (f *fields) fail(n int) bool {
	f.err = fmt.Errorf("%w: %w", errAnswer, protowire.ParseError(n))
	return false
}
