package workspace

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// TestCloseBesideAStart: a program that is being started has a copy of what is open here; a
// workspace that was closed meanwhile can be opened at once all the same.
func TestCloseBesideAStart(t *testing.T) {
	f := newFixture(t, Options{})
	had, err := syscall.Dup(int(f.w.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(had)
	f.reopen()
}

// TestForkBesideStarts: so can a fork.
func TestForkBesideStarts(t *testing.T) {
	f := newFixture(t, Options{})
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
			if err == nil {
				_, err = p.Wait()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 30 {
		dir := filepath.Join(t.TempDir(), "fork")
		if _, err := f.w.Fork(context.Background(), dir, ForkOptions{}); err != nil {
			t.Fatal(err)
		}
		w, err := Open(dir, Options{})
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}
	close(stop)
	work.Wait()
}
