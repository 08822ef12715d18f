package parcel

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Skipped and unreadable files are not sent, unreadable ones are reported, and
// Measure counts neither.
func TestSkipAndUnread(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "no/in", "closed/in", "locked", "z"} {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(dir+"/closed", 0), os.Chmod(dir+"/locked", 0)); err != nil {
		t.Fatal(err)
	}
	var unread []string
	opt := Options{
		Skip: func(path string, kind Kind) (bool, error) { return path == dir+"/no" && kind == Dir, nil },
		Unread: func(path string, why error) {
			unread = append(unread, filepath.Base(path)+" "+why.Error())
		},
	}
	asNobody(t, func() {
		if _, err := Measure(t.Context(), dir, Options{}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("measure of what cannot be read: %v", err)
		}
		if total, err := Measure(t.Context(), dir, opt); err != nil || total.Bytes != 3 {
			t.Errorf("measured %+v, %v", total, err)
		}
		var b bytes.Buffer
		w, err := NewWriter(&b, Totals{})
		if err != nil {
			t.Error(err)
		}
		if _, err := Pack(t.Context(), dir, w, opt); err != nil {
			t.Error(err)
		}
		if w.Sent.Entries != 3 || w.Sent.Bytes != 2 { // the top, a and z
			t.Errorf("sent %+v", w.Sent)
		}
		if want := []string{"closed permission denied", "locked permission denied"}; !slices.Equal(unread, want) {
			t.Errorf("unread: %q", unread)
		}
		if w, err = NewWriter(&b, Totals{}); err != nil {
			t.Error(err)
		}
		if _, err := Pack(t.Context(), dir, w, Options{}); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("pack of what cannot be read: %v", err)
		}
	})
}

// asNobody calls fn without root's capabilities for files, on a thread that ends with it.
func asNobody(t *testing.T, fn func()) {
	t.Helper()
	if os.Getuid() != 0 {
		fn()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			t.Error(errno)
		}
		fn()
	}()
	<-done
}
