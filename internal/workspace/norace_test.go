//go:build !race

package workspace

const underRace = false
