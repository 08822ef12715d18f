package sandbox

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestShorten: a log that is too long keeps its end, and what is appended next.
func TestShorten(t *testing.T) {
	log, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	text := bytes.Repeat([]byte("0123456789abcde\n"), maxConsole/16+5)
	if _, err := log.Write(text); err != nil {
		t.Fatal(err)
	}
	shorten(log, int64(len(text)))
	if _, err := log.WriteString("next"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(log.Name())
	if want := append(text[len(text)-maxConsole/2:], "next"...); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes (%v), want %d", len(got), err, len(want))
	}
}
