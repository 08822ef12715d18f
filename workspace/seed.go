package workspace

import (
	_ "embed" // for FILESYSTEM.md
)

// SeedName is the file that tells an agent how its file system works.
const SeedName = "FILESYSTEM.md"

//go:embed FILESYSTEM.md
var seed []byte

// Seed writes FILESYSTEM.md into the top of a new workspace, for the caller.
// It is written once: who edits or removes it has the last word.
func (w *Workspace) Seed(c Caller) error {
	a, err := w.tree.Create(c, Root, SeedName, 0o644)
	if err == nil {
		_, err = w.tree.Write(c, a.Ino, 0, seed)
	}
	if err != nil {
		return diskError("write "+SeedName, err)
	}
	return w.tree.Sync()
}
