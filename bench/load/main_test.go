package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func loaded(t *testing.T, args ...string) result {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatalf("load %v: %v", args, err)
	}
	var r result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("load %v printed %q: %v", args, out.String(), err)
	}
	if r.Seconds <= 0 || r.Count <= 0 {
		t.Errorf("load %v: %+v", args, r)
	}
	return r
}

func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	if r := loaded(t, "create", "-dir", dir, "-n", "1200"); r.Count != 1200 || r.Bytes != 1200*small {
		t.Errorf("create: %+v", r)
	}
	if r := loaded(t, "stat", "-dir", dir, "-n", "1200", "-cold"); r.Count != 1200 {
		t.Errorf("one pass of stat: %+v", r)
	}
	if r := loaded(t, "stat", "-dir", dir, "-n", "1200"); r.Count%1200 != 0 || r.Seconds < warmed.Seconds() {
		t.Errorf("stat until warm: %+v", r)
	}
	if err := run([]string{"create", "-dir", dir, "-n", "1"}, io.Discard); err == nil {
		t.Error("create over existing files succeeded")
	}
	loaded(t, "remove", "-dir", dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("after remove: %v", err)
	}
}

func TestBytes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if r := loaded(t, "write", "-file", file, "-mb", "3"); r.Bytes != 3*piece || r.Synced < r.Seconds {
		t.Errorf("write: %+v", r)
	}
	if r := loaded(t, "read", "-file", file, "-drop", "file"); r.Count != 3 {
		t.Errorf("read: %+v", r)
	}
	if r := loaded(t, "random", "-file", file, "-mb", "3", "-n", "5"); r.Count != 5 {
		t.Errorf("random: %+v", r)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{9}, piece); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"read", "-file", file}, io.Discard); err == nil {
		t.Error("a piece with a wrong number was not noticed")
	}
}

// What holds memory counts, in a file that whoever waits can read, what it has got done.
func TestHold(t *testing.T) {
	for _, args := range [][]string{{"-rate", "20"}, {"-rate", "-1"}, {"-compute"}, {"-compute", "-rate", "20"}} {
		file := filepath.Join(t.TempDir(), "count")
		r := loaded(t, append([]string{"hold", "-file", file, "-mb", "3", "-last", "300ms"}, args...)...)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != 8 || int64(binary.LittleEndian.Uint64(b)) != r.Count {
			t.Errorf("hold %v: %+v, and its file holds %x", args, r, b)
		}
		if args[1%len(args)] == "20" && float64(r.Count) > 1.5*20*pagesPerMB*r.Seconds {
			t.Errorf("hold %v changed %d pages in %v s", args, r.Count, r.Seconds)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"nothing"}, {"create", "-x"}, {"read", "-file", "/does/not/exist"}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("load %v succeeded", args)
		}
	}
}

func TestPort(t *testing.T) {
	host, guest := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- servePort(guest) }()
	say := func(b ...byte) {
		t.Helper()
		if _, err := host.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(n int) []byte {
		t.Helper()
		b := make([]byte, n)
		if _, err := io.ReadFull(host, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	say('?')
	if got := hear(1); got[0] != '?' {
		t.Errorf("echo: %q", got)
	}
	const n = 100_000
	say(binary.LittleEndian.AppendUint64([]byte{orderIn}, n)...)
	say(make([]byte, n)...)
	if got := hear(1); got[0] != orderIn {
		t.Errorf("answer: %q", got)
	}
	say(binary.LittleEndian.AppendUint64([]byte{orderHold}, 1)...) // MiB
	if got := hear(1); got[0] != orderHold {
		t.Errorf("after memory is held it says %q", got)
	}
	say(binary.LittleEndian.AppendUint64([]byte{orderOut}, n)...)
	hear(n)
	host.Close()
	if err := <-ended; err == nil {
		t.Error("the end of the port is no error")
	}
}

// What a program serves is moved both ways, and answered.
func TestServed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go serveOn(l)
	defer l.Close()
	at := l.Addr().String()
	for _, kind := range []string{"send", "fetch"} {
		if r := loaded(t, kind, "-addr", at, "-mb", "3"); r.Bytes != 3*piece {
			t.Errorf("%s: %+v", kind, r)
		}
	}
	for _, kind := range []string{"dial", "echo"} {
		if r := loaded(t, kind, "-addr", at, "-n", "7"); r.Count != 7 {
			t.Errorf("%s: %+v", kind, r)
		}
	}
	l.Close()
	if err := run([]string{"dial", "-addr", at, "-n", "1"}, io.Discard); err == nil {
		t.Error("nobody listens, and it was connected")
	}
}
