package machine

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// longDir returns a machine directory whose path does not fit into a socket address.
func longDir(t *testing.T) *Dir {
	t.Helper()
	d, err := MakeDir(filepath.Join(t.TempDir(), strings.Repeat("x", 120)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestLockIsInherited(t *testing.T) {
	d := longDir(t)
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(); holt.CodeOf(err) != holt.Conflict {
		t.Errorf("second lock: %v", err)
	}
	cmd := sleeper(t, lock)
	lock.Close()
	if locked, err := d.Locked(); err != nil || !locked {
		t.Errorf("locked by a child: %v, %v", locked, err)
	}
	all := func(Process) bool { return true }
	root := filepath.Dir(d.Path)
	strays, err := FindStrays(root, all, Process.Kill)
	if err != nil || len(strays) != 1 || strays[0].Dir != d.Path || strays[0].Process.PID != cmd.Process.Pid {
		t.Fatalf("strays: %+v, %v", strays, err)
	}
	if err := os.RemoveAll(d.Path); err != nil {
		t.Fatal(err)
	}
	if after, err := FindStrays(root, all, Process.Kill); err != nil || len(after) != 1 || after[0].Dir != d.Path || after[0].Process != strays[0].Process {
		t.Errorf("strays of a removed directory: %+v, %v", after, err)
	}
	if none, err := FindStrays(root+"x", all, Process.Kill); err != nil || len(none) != 0 {
		t.Errorf("strays beside the root: %+v, %v", none, err)
	}
	if err := strays[0].Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if after, err := FindStrays(root, all, Process.Kill); err != nil || len(after) != 0 {
		t.Errorf("strays after the kill: %+v, %v", after, err)
	}
}

func TestFind(t *testing.T) {
	d := longDir(t)
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := sleeper(t, lock)
	lock.Close()
	none := func(string) ([]Stray, error) { return nil, nil }
	if _, _, err := d.Find(none); !errors.Is(err, ErrGone) {
		t.Errorf("find without a record: %v", err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		Engine: "test", Process: p, StartedAt: time.Now().UTC().Round(0),
		Spec:     Spec{ID: "x", Dir: d.Path, CPUs: 1, MemoryMB: 2, Args: []string{"a"}},
		Hardware: json.RawMessage(`"some"`),
	}
	if err := d.WriteRecord(want); err != nil {
		t.Fatal(err)
	}
	h, got, err := d.Find(none)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if left, err := filepath.Glob(d.File(RecordFile + ".*")); err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestOpenDir(t *testing.T) {
	if _, err := OpenDir("/does/not/exist"); !errors.Is(err, ErrGone) || holt.CodeOf(err) != holt.Unavailable {
		t.Errorf("open an absent directory: %v", err)
	}
	if _, err := OpenDir("relative"); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("open a relative path: %v", err)
	}
}

// listens accepts connections until the test ends.
func listens(t *testing.T, listen func(string) (*os.File, error), name string) net.Listener {
	t.Helper()
	f, err := listen(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Message boundaries are preserved; a machine of an older holt has a stream socket.
func TestFrames(t *testing.T) {
	d := longDir(t)
	for name, listen := range map[string]func(string) (*os.File, error){"frames.sock": d.ListenFrames, "stream.sock": d.Listen} {
		l := listens(t, listen, name)
		near, err := d.DialFrames(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		far.Write([]byte("one"))
		far.Write([]byte("two"))
		b := make([]byte, 10)
		if n, err := near.Read(b); err != nil || (string(b[:n]) == "one") != (name == "frames.sock") {
			t.Errorf("%s: read %q, %v", name, b[:n], err)
		}
	}
	if _, err := d.DialFrames(t.Context(), "none.sock"); !errors.Is(err, ErrGone) {
		t.Errorf("dial where nobody listens: %v", err)
	}
}

func TestPorts(t *testing.T) {
	d := longDir(t)
	listens(t, d.Listen, Socket(PortControl))
	p := Ports{Dir: d}
	if _, err := p.Dial(t.Context(), PortFiles); !errors.Is(err, ErrGone) {
		t.Errorf("dial where nobody listens: %v", err)
	}
	var conns [2]net.Conn
	var err error
	for i := range conns {
		if conns[i], err = p.Dial(t.Context(), PortControl); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conns[0].Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to the former connection: %v", err)
	}
	if _, err := conns[1].Write([]byte("x")); err != nil {
		t.Error(err)
	}
	p.Close()
	if _, err := p.Dial(t.Context(), PortControl); !errors.Is(err, ErrGone) {
		t.Errorf("dial after close: %v", err)
	}
}

func TestClear(t *testing.T) {
	d := longDir(t)
	file := d.File("x.sock")
	write := func() {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := Clear(d.Path, "x.sock", "y.sock"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is there")
	}
	write()
	lock, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := Clear(d.Path, "x.sock"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file of a running machine is gone: %v", err)
	}
	if err := Clear("/does/not/exist", "x.sock"); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	good := Spec{Dir: "/d", CPUs: 1, MemoryMB: 64}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Spec{
		{CPUs: 1, MemoryMB: 64},
		{Dir: "d", CPUs: 1, MemoryMB: 64},
		{Dir: "/d", CPUs: 1, MemoryMB: 64, Disk: "disk"},
		{Dir: "/d", CPUs: 0, MemoryMB: 64},
		{Dir: "/d", CPUs: 1, MemoryMB: -1},
	} {
		if err := bad.Validate(); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"engine":"local","process":{"pid":7,"start":1,"boot_id":"b"},"spec":{"Args":["a"]},"hardware":{"x":1}}`))
	f.Add([]byte(`{"engine":"local","process":{"pid":-1}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			if holt.CodeOf(err) != holt.Corrupt {
				t.Errorf("code of %v", err)
			}
			return
		}
		if r.Process.PID <= 1 || r.Engine == "" {
			t.Errorf("accepted %+v", r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRecord(again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
