package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestLogIsBounded writes far more than a log may hold.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.log")
	if err := os.WriteFile(path, []byte("of the daemon before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	l := &logFile{path: path, most: 1000, stderr: stderr}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 1000 {
			t.Fatalf("%s has %d bytes", name, len(b))
		}
		return b
	}
	const lines = 200
	for i := range lines {
		if _, err := fmt.Fprintf(l, "line %03d\n", i); err != nil {
			t.Fatal(err)
		}
		if both := read(path); i == 0 && !bytes.HasPrefix(both, []byte("of the daemon before\nline 000\n")) {
			t.Errorf("what the daemon before said is gone: %q", both)
		}
	}
	if _, err := fmt.Fprint(stderr, "panic: a panic"); err != nil {
		t.Fatal(err)
	}
	both := append(read(path+".1"), read(path)...)
	if !bytes.HasSuffix(both, []byte(fmt.Sprintf("line %03d\npanic: a panic", lines-1))) || bytes.Count(both, []byte("line")) < 111 {
		t.Errorf("the log says %q", both)
	}
}
