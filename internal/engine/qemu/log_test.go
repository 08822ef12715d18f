package qemu

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTailLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	const lines = 5 * maxLog / 100
	var most int64
	for i := range lines {
		fmt.Fprintf(l, "%099d\n", i)
		if i%100 == 0 {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, info.Size())
		}
	}
	l.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if most = max(most, int64(len(b))); most > maxLog {
		t.Errorf("the log grew to %d bytes", most)
	}
	if len(b) < maxLog/2 || !bytes.HasSuffix(b, fmt.Appendf(nil, "%099d\n", lines-1)) {
		t.Errorf("%d bytes are left and end in %q", len(b), b[max(0, len(b)-20):])
	}
	if !strings.HasSuffix(l.Last(), fmt.Sprintf("%099d\n", lines-1)) || len(l.Last()) > maxLast {
		t.Errorf("last words: %q", l.Last())
	}
	l, err = openLog(path) // as a new daemon does
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if fmt.Fprint(l, "more"); l.size != int64(len(b)+4) {
		t.Errorf("size %d after %d bytes", l.size, len(b))
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("files: %v, %v", left, err)
	}
}
