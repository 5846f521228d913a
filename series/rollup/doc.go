// Package rollup encodes what is kept of the samples of a day at a lower resolution.
//
// A day D has the times (D, D + 24 h], D a multiple of 24 hours. So the time 0 is in none. It is
// divided into buckets of 5 minutes or of an hour: bucket k has the times (D + k*span, D + (k+1)*span].
// Buckets and days have their ends and not their starts, as the ranges of PromQL.
//
// A bucket keeps true samples, with their times: the first and the last one, one of the least
// and one of the greatest value where these are none of the others, and where a counter begins again the
// sample before and the one after, unless there are too many such places. Beside them it
// keeps numbers: how many samples there are, their sum, how often their value changes, and how often it
// is less than the one before. Staleness markers are no samples: a bucket only keeps one that
// ends it. So all that rate, increase, delta, changes, resets and the like need of a
// range of whole buckets is there, to the bit.
//
// Of native histograms a bucket keeps the first and the last one, those around counter resets as above, and a gauge if there is
// one. Whether a counter is reset is found out by comparison, as functions of PromQL do. The schema only falls up to a reset, and custom
// buckets do not begin or end without one: so the least schema is among those that are kept. The numbers are how many there are, how
// often they change, and how often they are reset.
//
// # The cell
//
// A cell of the family 5m or 1h holds the buckets of a day, of the samples of its row. A day in which a
// base begins has a cell in both rows, and the bucket in which it does may have samples in both.
//
//	qualifier  delta of D, or 0 if the base is later: 4 bytes, big-endian
//	time       D + 24 h, and the count of writes to the day on which the cell is based, in milliseconds
//	value      kind: 1 byte, data. Or nothing, if the row has no samples in the day
//
// The kinds are:
//
//	1  buckets of floats, below
//	2  no buckets: the row has samples of the day with start timestamps, histograms beside floats, or histograms
//	   of which a cell would have more than a megabyte
//	3  buckets of histograms, below
//	4  buckets of floats, with edges
//	5  buckets of histograms, with edges
//	6  buckets of floats of which another system kept aggregates, see AggregateEncoder
//
// Kinds 1 and 3 are no longer written, and made again when their day is, where its samples are there. Where samples are there, versions that do not know a kind read them; where they are gone, their queries
// fail.
//
// Kind 4 has flags, a class, a number and 18 columns, kinds 1 and 6 the same without the class and the last four columns:
//
//	flags    1 byte: those of all buckets, each that is set in any
//	class    1 byte: the least of column 14, or 15 if that is empty
//	buckets  uvarint: how many have a sample or a marker, 1 to 288
//	columns  each its size in bytes as a uvarint, and the bytes
//
// The columns, of integers but where it says floats, are written as package dense has columns of chunks:
//
//	 0  number of the bucket, ascending
//	 1  flags of the bucket: 1 if a marker ends it, 2 if resets are not kept, 4 if the sum is not kept, 8 if it lost
//	    all that it kept to a deletion of a part of its samples, 16 if changes and resets are not counted
//	 2  how many samples it has
//	 3  how many samples it keeps between the first and the last
//	    of buckets with a sample:
//	 4  time of the first sample, from the start of the bucket
//	 5  value of the first sample, float
//	 6  sum of its samples, float
//	    of buckets with two samples or more:
//	 7  time of the last sample, back from the end of the bucket
//	 8  value of the last sample, float
//	 9  how often the value changes from sample to sample
//	10  how often it is less than the one before
//	    of each sample between, bucket after bucket:
//	11  time, from the sample kept before it
//	12  value, float
//	    of buckets that a marker ends:
//	13  time of the marker, back from the end of the bucket
//	    of buckets with two samples or more:
//	14  class: of which end of the bucket all samples of the row are kept, below
//	15  how many samples its tail has, 0 to 4
//	    of each sample of a tail, the last one first:
//	16  time, back from the one after it in the tail, or from the last sample
//	17  1 byte and floats: 0 and the values, or 1 and what is to be subtracted from the value of the one after it
//
// Times are in milliseconds. A column of integers is the first one as a varint and a sequence, one
// of floats begins with its kind. A column of nothing is empty.
//
// # Edges
//
// A window that begins inside a bucket has the samples after that. Classes 0 to 10 say that all samples of the last 0, 1, 2, 5, 10, 15, 20,
// 30, 60, 120 or 240 seconds of a bucket are kept, 15 that all of the bucket are. So a window may begin at the start of the bucket, before its first sample, from
// its last one on, or that long before its end. Of a bucket that lies in two rows both must say so.
//
// Where its resets are kept, a bucket of an hour of floats keeps the last five samples of its last 60 seconds: those that it does not keep anyway are its tail. It has
// no tail where all that it keeps would then tell of other resets, or another least or greatest value, than its samples do, as NaNs between them can.
//
// # Aggregates
//
// Of a day of which another system only kept aggregates, as Thanos does in downsampled blocks, the number of samples, their sum, the least and the
// greatest one of a bucket are true. What it keeps as samples has these two values, and rises by as much as the counter did; the times, and of series that
// are no counters the first and the last value, are estimates. How often values change is not known.
//
// # Histograms
//
// Kind 5 has columns 0 to 14 of kind 4, and one more; kind 3 the same without the class and column 14. Columns 4 to 8 and 11 to 13 are
// empty, and all buckets have the flag 4:
//
//	last  chunks of the histograms that are kept, bucket after bucket: the first, those between, the last, and the marker
//
// A chunk is its encoding in 1 byte, that of integers or that of floats of package chunkenc of Prometheus, its size as a uvarint, and its
// bytes. A staleness marker that was written as a float is kept as a histogram of integers.
package rollup
