package bucketstore

// Traits are what distinguishes a store beyond the contract of Store. They are the same for all
// stores of a backend, and the conformance suite checks what can be seen from outside. The
// zero Traits promise nothing and are never wrong for a store that one process uses.
type Traits struct {
	// Shared says that other processes may read and write the store at the same time.
	Shared bool
	// AtomicApply says that all mutations of an Apply happen together, or none of them.
	AtomicApply bool
	// KeepsVersions says that a cell which a newer one has replaced stays for a while, unseen,
	// and counts towards the size of its row.
	KeepsVersions bool
	// OwnAges says that the store keeps the ages of its families itself. Only its
	// administration changes them, and flags have an effect on new tables alone.
	OwnAges bool
	// OnDisk says that the store is files on the local disk.
	OnDisk bool
	// ParallelScans is how many scans of one read run concurrently with profit. It is more than 1
	// where a scan waits for a network.
	ParallelScans int
}
