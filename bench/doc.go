// Bench measures the product as its users meet it, beside the yardsticks it is
// held against, in one run, and puts the tables into docs/notes/benchmarks.md:
//
//	go run ./bench -out docs/notes/benchmarks.md    everything
//	go run ./bench -only engine                one group, to standard output
//	go run ./bench -only host/untar            the works of a group whose names hold a word
//
// It is not a test: it asserts nothing, but a target that is missed says so in
// the document.
//
// # How it measures
//
// A group is a table of works. Each work is done in several places (or by
// several means): one column each. A round does it once in every place, in an
// order that turns from round to round; rounds are repeated, since the
// machine's mood changes by the minute. A figure is the median of its rounds,
// with the smallest and the largest; a ratio is the median of the ratios of
// each round, which a slow minute changes least.
//
// File work is done by separate processes (bench/load, git, tar, find), never
// by this one: it serves the mounts that are measured.
//
// # Traps
//
// This process serves FUSE mounts, so it must touch no path below them, not
// even as a child's working directory: between fork and exec a thread waits
// for its child in a way that the garbage collector cannot interrupt, and the
// child would wait for this process. Mounts, daemons and machines are made
// with a cleanup that runs on every way out; what a killed bench left behind is
// removed by the next one.
package main
