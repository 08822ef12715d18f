package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzParseStart: a process chooses its name, which is part of /proc/pid/stat.
func FuzzParseStart(f *testing.F) {
	f.Add([]byte("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20"))
	f.Add([]byte("7 (sleep"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, stat []byte) { parseStart(stat); parseStopped(stat) })
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add("MemTotal: 5 kB\nMemAvailable: 9223372036854775807 kB\n")
	f.Fuzz(func(t *testing.T, text string) { ParseMeminfo(text) })
}

// A machine's directory is accessible only to its owner, whatever its mode was.
func TestMakeDirMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	d, err := MakeDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
