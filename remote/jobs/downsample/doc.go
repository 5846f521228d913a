// Package downsample makes rollups: the cells of package series/rollup, of each row and day whose
// samples have all come.
//
//	Days     up to which day there may be rollups, in META       days.go, state.go
//	         writes to such days are counted                     count.go
//	         days of which no sample is taken any more           close.go
//	Notes    which days were written to after they were made     notes.go
//	Maker    day after day, all rows                             maker.go, walk.go, row.go
//	         what it waits for, which is a state and no failure  wait.go
//
// # Why no rollup is ever wrong
//
// A rollup says on how many writes to its day it is based: its time is the end of the day and the count
// of family d, in milliseconds. A reader gets both, of one row at one instant, and takes the rollup only if
// they agree, and if there is no sample of the day in memory. So a write to a day that may have rollups must
// add 1 to the count, in the same mutation. Which days these are is begun, in META/rollup:
//
//   - It is raised before any rollup of a later day is made, and never goes back.
//   - Where one process has the store, writers hold a lock while they write, and begun is raised under it.
//   - Elsewhere each writer reads begun again and again. It leaves a count out only if it has read begun within ten minutes
//     when it begins, by any clock, and reads it and counts again if the write took more than five. A maker waits for twenty minutes
//     after it has itself seen a value of begun before it reads a row: it may have been raised just then, also by a request of its own that
//     seemed to fail. So a write that is not counted is in the store by then, and read.
//   - Of two makers that make the same rollup, the newest wins however late an older one arrives: it has
//     the greater time.
//
// Counts are compared and never interpreted, so a retry may count again.
//
// # The end of the samples of a day
//
// Before the samples of a day may be deleted its rollups must be right for ever. First closed is raised: writers refuse the day, as freshly
// as they count. Then the maker waits as above, and its own buffer stores what it holds of it. Every other log that META lists must say that it
// has no sample of it, seen after its adapter refuses the day: a row that says so stays true, also of a process that dies. A log that does not
// say so holds back the day, and no day is released beside it before it is replayed or forgotten. Then all rows of the day are read once more, and
// what differs is made. Only then the day is released: the horizon of the samples passes it, and readers take its rollups as they are.
//
// A write may still come, and count, but it is not answered. A maker that reads its row then could take a day for empty whose samples
// were deleted, and its rollup would be the newest. So a maker writes only if a state that is fresh after it has read says that
// the day is not closed, or if the state says so when it is read again that the day is not released.
package downsample
