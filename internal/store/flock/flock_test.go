package flock

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A child process has a copy of each file until its exec; Close unlocks the file nevertheless.
func TestCloseUnlocksInheritedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Open(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, 0o600); !errors.Is(err, ErrHeld) {
		t.Fatalf("locked twice: %v", err)
	}
	held, err := unix.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	if err := Close(first); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path, 0o600)
	if err != nil {
		t.Fatalf("a lock that was let go of is held: %v", err)
	}
	if err := Close(second); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(path, "below"), 0o600); err == nil {
		t.Error("a file below a file was opened")
	}
}
