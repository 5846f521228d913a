package bigtable

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// The bounds of a batch with more than one row.
const (
	batchRows = 5000
	batchSize = 2 << 20
)

// A batch is the rows of one request as its bytes, and what became of them.
type batch struct {
	// data is the request. Once it is sealed it belongs to sealed.
	data   *[]byte
	sealed mem.Buffer
	// head is how many bytes stand before the first row.
	head int
	// ends are the ends of the rows in the request.
	ends []int
	// rows are the caller's numbers of the rows in the request.
	rows []int
	// ops is how many operations the rows have.
	ops int
	// answer is what was answered to the request when it was sent last.
	answer answer

	// failed are the errors of rows by the caller's numbers.
	failed map[int]error
	// err is the error of the whole request: nobody knows which rows are stored.
	err error
}

// hasRoom says whether a row of so many bytes and operations is to go into b,
// or to begin another.
func (b *batch) hasRoom(size, ops int) bool {
	return len(b.rows) == 0 ||
		len(b.rows) < batchRows && len(*b.data)+size <= batchSize && b.ops+ops <= maxOps
}

// added notes that a row with so many operations has been appended to data.
func (b *batch) added(row, ops int) {
	b.ends = append(b.ends, len(*b.data))
	b.rows = append(b.rows, row)
	b.ops += ops
}

// fail notes the error of the row at position i of the request.
func (b *batch) fail(i int, err error) {
	if b.failed == nil {
		b.failed = make(map[int]error)
	}
	b.failed[b.rows[i]] = err
}

// end notes the error that ended the sending of b, of which n rows were to be
// sent at first.
func (b *batch) end(err error, n int) {
	if err == nil {
		return
	}
	if len(b.rows) == n {
		b.err = err
		return
	}
	for i := range b.rows {
		b.fail(i, err)
	}
}

// eachFailed calls f with the number and the error of each row that is not
// confirmed.
func (b *batch) eachFailed(f func(row int, err error)) {
	for row, err := range b.failed {
		f(row, err)
	}
	if b.err == nil {
		return
	}
	for _, row := range b.rows {
		f(row, b.err)
	}
}

// unstored returns how many rows are not confirmed.
func (b *batch) unstored() int {
	if b.err != nil {
		return len(b.rows)
	}
	return len(b.failed)
}

// batchPool keeps the memory of batches. The zero value is ready for use.
type batchPool struct {
	requests requestPool
	batches  sync.Pool
}

// get returns a batch without rows whose request begins with head.
func (p *batchPool) get(head []byte) *batch {
	b, ok := p.batches.Get().(*batch)
	if !ok {
		b = new(batch)
	}
	*b = batch{data: p.requests.get(), head: len(head), ends: b.ends[:0], rows: b.rows[:0], answer: b.answer}
	*b.data = append(*b.data, head...)
	return b
}

// put takes a batch back, whose request is released.
func (p *batchPool) put(b *batch) {
	b.failed, b.err, b.answer.failed = nil, nil, nil
	p.batches.Put(b)
}

// seal ends the building of a request.
func (p *batchPool) seal(b *batch) { b.sealed = mem.NewBuffer(b.data, &p.requests) }

// release ends the use of a request, which gRPC may still read.
func (b *batch) release() {
	b.sealed.Free()
	b.data, b.sealed = nil, nil
}

// keep makes a request of those rows of the last one that failed and may be sent
// again, and returns the error of one of them, nil if there is none. The others
// that failed go to b.failed.
func (p *batchPool) keep(b *batch) error {
	old, data := *b.data, p.requests.get()
	*data = append(*data, old[:b.head]...)
	var again error
	n, start := 0, b.head
	for i, end := range b.ends {
		switch err := b.answer.failed[i]; {
		case err == nil:
		case isTransient(status.Code(err)):
			*data = append(*data, old[start:end]...)
			b.ends[n], b.rows[n] = len(*data), b.rows[i]
			n, again = n+1, err
		default:
			b.fail(i, err)
		}
		start = end
	}
	b.release()
	b.data, b.ends, b.rows = data, b.ends[:n], b.rows[:n]
	p.seal(b)
	return again
}
