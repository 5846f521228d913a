// Package downsample makes rollups: the cells of package series/rollup, of each row and day whose
// samples have all come.
//
//	Days     up to which day there may be rollups, in META       days.go, state.go
//	         writes to such days are counted                     count.go
//	         days of which no sample is taken any more           close.go
//	Notes    which days were written to after they were made     notes.go
//	Maker    day after day, all rows                             maker.go, walk.go, row.go
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
//   - Elsewhere each writer reads begun again and again. It leaves a count out only if it has read begun within ten minutes,
//     by any clock, and decides again if the write took more than five. The maker waits for twenty minutes after begun was
//     raised before it reads a row. So a write that is not counted is in the store by then, and read.
//   - Of two makers that make the same rollup, the newest wins however late an older one arrives: it has
//     the greater time.
//
// Counts are compared and never interpreted, so a retry may count again.
//
// # The end of the samples of a day
//
// Before the samples of a day may be deleted its rollups must be right for ever. First closed is raised: writers refuse the day. Then
// buffers store what they hold of it. Then all its rows are read once more, and what differs is made. Only then the
// horizon of the samples passes the day, and readers take its rollups as they are.
package downsample
