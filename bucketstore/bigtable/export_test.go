package bigtable

// ParseAnswer reads a message of the answer to a request of n rows, and returns
// which are stored and the errors of others.
func ParseAnswer(n int, msg []byte) (confirmed []bool, failed map[int]error, err error) {
	var a answer
	a.reset(n)
	err = a.parse(msg)
	return a.confirmed, a.failed, err
}
