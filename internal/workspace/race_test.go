//go:build race

package workspace

// underRace makes large counts small: the detector slows SQLite by ten.
const underRace = true
