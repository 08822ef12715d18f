//go:build !race

package daemon_test

// slower is how much more time and memory all takes under the race detector.
const slower = 1
