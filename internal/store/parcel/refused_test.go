package parcel

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// smallFiles limits the size of files to 1 GiB.
func smallFiles(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 30, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Error(err)
		}
		signal.Reset(syscall.SIGXFSZ)
	})
}

// TestRefused: a file that is too large for the file system is left out under
// all its names, and the entries after it are unpacked.
func TestRefused(t *testing.T) {
	smallFiles(t)
	b := hand(t, func(w *Writer) {
		w.Entry(&Entry{Kind: Dir, Mode: 0o755})
		w.Entry(&Entry{Kind: Dir, Name: "d", Mode: 0o755})
		w.Entry(&Entry{Kind: File, Name: "far", Mode: 0o644, Size: 1 << 60, ID: 7})
		w.Data(0, []byte("near"))
		w.Data(1<<59, []byte("far"))
		w.Data(1<<59+4096, []byte("further"))
		w.Entry(&Entry{Kind: Link, Name: "far again", ID: 7})
		w.Entry(&Entry{Kind: File, Name: "hollow", Mode: 0o644, Size: 1 << 60})
		w.Up()
		w.Entry(&Entry{Kind: File, Name: "x", Mode: 0o644, Size: 3})
		w.Data(0, []byte("new"))
		w.Up()
	})
	if _, err := unpack(t, b, t.TempDir(), Options{}); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("unasked: %v", err)
	}
	var refused []string
	dir := t.TempDir()
	_, err := unpack(t, b, dir, Options{Refused: func(path string, why error) {
		if refused = append(refused, path); !errors.Is(why, syscall.EFBIG) {
			t.Errorf("%s: %v", path, why)
		}
	}})
	if err != nil || !slices.Equal(refused, []string{"d/far", "d/far again", "d/hollow"}) {
		t.Errorf("%q, %v", refused, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "d"))
	if got, no := os.ReadFile(filepath.Join(dir, "x")); len(left) > 0 || err != nil || no != nil || !bytes.Equal(got, []byte("new")) {
		t.Errorf("left %v, %v, %q %v", left, err, got, no)
	}
}
