// Package deletion deletes samples: those in a range of time, of the series that a selector
// matches, that were written before the request.
//
//	record.go    a deletion, and what it covers
//	filter.go    the cells of a row without what is deleted
//	store.go     a Store whose readers do not see it
//	records.go   the deletions that a process knows: new ones, those of others
//	executor.go  removes it from the store: when, which series
//	rows.go      what becomes of their rows
//	rollups.go   and of rollups whose samples are gone
//	current.go   and of CURRENT
//	plan.go      what a deletion would remove
//	metrics.go   metrics
//
// # The rule
//
// A deletion is a record in META, durable before its request is answered. It has a stamp. A
// sample in its range of a series that matches is deleted if its cell was written before:
//
//	chunk      its stamp is at most that of the record
//	cell of l  its time, that of arrival, is at most the stamp
//	cell of r  always
//	exemplar   always
//	CURRENT    its time, that of the sample, is before the request
//
// All else is kept. Every writer that knows the record writes such that its samples are kept,
// however old their times: see "Writers". So a sample that is written again is there again.
// Exemplars have no time of arrival: those that are written into the range until the record is
// done may be deleted, too.
//
// Until the record is done each reader leaves out what is deleted (Records.Filter), and open
// chunks, late chunks and the retry queue of a buffer are read like that, too. The executor then
// removes it from the store, and marks the record as done. It begins when nothing from
// before the record can be written to the store any more, so that nothing comes back.
//
// # Writers
//
// The process that takes the request knows the record at once, others within a minute.
//
// A buffer has no chunk with samples from both before and after the stamp: it seals the open
// chunks that the record covers, and its next requests have later stamps, see buffer.Barrier. A
// replay does the same between the same two requests, and META notes that the log is divided
// there. So a request in the log from before the record makes chunks that are deleted, whenever
// they are written.
//
// Without a buffer, samples that may be in the range go to l and not to r, with a time after
// the stamp, see Arrival. They do so until their windows get no cells of r any more, even if
// the record is done by then: a later cell of r would lose against that of l. So the record
// stays in META as long. An adapter that could not read META for two minutes writes all to l.
//
// A sealer leaves out the rows that a record covers until it is done. It reads META before each
// step.
//
// # When nothing from before can be written any more
//
//   - Writes of this process that began before the record have ended: Delete waits for them.
//   - Each log that META lists has passed the record: its process has written in META that
//     nothing from before is in its memory, in its log or among its failing rows. The
//     log of an adapter that is gone holds the record until it is replayed or forgotten.
//   - Where other adapters write, the record was seen propagation ago: they know it for long enough
//     that all their writes from before have ended, and those of sealers.
//
// On the embedded store the stamp is that of the log, or of the clock without a buffer. Where
// other adapters write it is a quarter of an hour ahead of the clock, and writers that know the
// record use stamps ahead of their clocks until then. So chunks that another adapter makes
// before it knows the record have lesser stamps, as long as clocks differ by less than that.
// The samples that others write into the range in that minute are deleted. A buffer that is
// past the stamp when it learns of the record, because META could not be read, or by the next
// process on its log, raises the stamp. That deletes also what was written meanwhile.
//
// # Rollups
//
// Until a record is done, rollups of days in its range are shown only where samples are gone, without the buckets that it touches. The
// removal of samples counts as a write to their day, so its rollups are made again. Of days that are closed, which are not
// made again, the executor removes the buckets: whole ones, also where a part is in the range.
//
// # The executor
//
// One process at a time removes what is deleted, by a lease, see meta.Lease. It takes the
// records one by one, each series by series in order of their keys, and its position is in
// META, so that another process goes on from there. A chunk that is deleted in part is replaced
// by chunks of the rest with the same stamp. To repeat a mutation changes nothing. CURRENT gets
// the latest sample that is left. Rows of the index stay, and age out.
package deletion
