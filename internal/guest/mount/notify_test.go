package mount

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

// TestNotificationsDoNotBlockReplies sends more notifications of a directory than may be
// in flight, while a process that creates a file there holds its lock and
// waits.
func TestNotificationsDoNotBlockReplies(t *testing.T) {
	var armed atomic.Bool
	arrived, gone := make(chan struct{}), make(chan struct{})
	ws, err := workspace.Create(filepath.Join(t.TempDir(), "ws"), workspace.Options{Fail: func(point string) error {
		if point == "commit.append" && armed.CompareAndSwap(true, false) {
			close(arrived)
			<-gone
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ws.Close(); err != nil {
			t.Error(err)
		}
	})
	k := newKernel(t)
	n := &Notifier{}
	serveGuest(t, ws, k, GuestOptions{Notifier: n})
	armed.Store(true)
	made := make(chan error, 1)
	go func() { made <- os.WriteFile(filepath.Join(k.dir, "file"), []byte("made"), 0o644) }()
	<-arrived
	for i := range 20 * channel.MaxNotices {
		if err := n.Notify(Change{Ino: workspace.Root, Name: fmt.Sprint("n", i)}); err != nil {
			t.Fatal(err)
		}
	}
	onTheirWay := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.sent
	}
	for onTheirWay() < channel.MaxNotices {
		time.Sleep(time.Millisecond)
	}
	close(gone)
	if err := <-made; err != nil {
		t.Error(err)
	}
	if err := n.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAcknowledgementIsChecked: a guest acknowledges more notifications than are in flight.
func TestAcknowledgementIsChecked(t *testing.T) {
	n := &Notifier{}
	if err := n.Notify(make([]Change, 2*channel.MaxNotices)...); err != nil {
		t.Fatal(err)
	}
	sent := 0
	send := func(Change) error { sent++; return nil }
	for _, taken := range []int{0, 1, channel.MaxNotices / 2} {
		if err := n.taken(taken); err != nil {
			t.Fatal(err)
		}
		if _, err := n.drain(channel.MaxNotices, send); err != nil {
			t.Fatal(err)
		}
	}
	if want := channel.MaxNotices + 1 + channel.MaxNotices/2; sent != want {
		t.Errorf("%d were sent, want %d", sent, want)
	}
	if err := n.taken(channel.MaxNotices + 1); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("more taken than sent: %v", err)
	}
}

// guestView is a workspace that a guest's kernel has cached, before and after changes to announce.
type guestView struct {
	t   *testing.T
	dir string
}

// fill creates the files that restoreBehind changes.
func (v guestView) fill() {
	v.t.Helper()
	sh(v.t, v.dir, `mkdir d; for i in $(seq 50); do echo then > d/f$i; done; echo then > gone; chmod 600 d/f1; sync -f .`)
}

// change changes bytes and attributes, and adds and removes names; the kernel
// then caches the result.
func (v guestView) change() {
	v.t.Helper()
	sh(v.t, v.dir, `for i in $(seq 50); do echo now, longer > d/f$i; done; chmod 644 d/f1; rm gone; mkdir new; echo x > new/x; mv d/f50 d/g; sync -f .
		cat d/* > /dev/null; ls -la . d new > /dev/null; ! test -e gone; ! test -e d/f50`)
}

// isThen checks that the kernel shows the state after fill.
func (v guestView) isThen() {
	v.t.Helper()
	sh(v.t, v.dir, `test "$(cat gone)" = then; ! test -e new; ! test -e d/g; test "$(stat -c %a d/f1)" = 600
		test "$(ls d | wc -l)" = 50; for i in $(seq 50); do test "$(stat -c %s d/f$i)" = 5; test "$(cat d/f$i)" = then; done`)
}

// tell queues what ws reports as stale, as the daemon does.
func tell(t *testing.T, ws *workspace.Workspace, n *Notifier) {
	ws.OnStale(func(stale []workspace.Stale) {
		for _, s := range stale {
			if err := n.Notify(Change{Ino: s.Ino, Name: s.Name}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestNotificationsSurviveSession ends a session whose kernel has acknowledged nothing.
func TestNotificationsSurviveSession(t *testing.T) {
	ws := newWorkspace(t)
	k := newKernel(t)
	v := guestView{t, k.dir}
	n := &Notifier{}
	tell(t, ws, n)
	var stuck atomic.Bool
	free := make(chan struct{})
	k.hold = func() {
		if stuck.Load() {
			<-free
		}
	}
	end := guestSession(t, ws, k, n)
	v.fill()
	if _, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	v.change()
	stuck.Store(true)
	if _, err := ws.Restore(t.Context(), workspace.Caller{}, "then", workspace.RestoreOptions{}); err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	for n.sent < len(n.queue) {
		n.mu.Unlock()
		time.Sleep(time.Millisecond)
		n.mu.Lock()
	}
	n.mu.Unlock()
	end()
	stuck.Store(false)
	close(free)
	defer guestSession(t, ws, k, n)()
	if err := n.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.isThen()
	k.unmount()
}

// TestNotificationsSurviveDaemon kills a daemon after it has restored a checkpoint
// and before the guest's kernel is notified.
func TestNotificationsSurviveDaemon(t *testing.T) {
	at := filepath.Join(t.TempDir(), "ws")
	ws, err := workspace.Create(at, workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := newKernel(t)
	v := guestView{t, k.dir}
	end := guestSession(t, ws, k, nil)
	v.fill()
	if _, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	v.change()
	end()
	if err := ws.Close(); err != nil {
		t.Fatal(err)
	}
	restoreAndDie(t, at, k)
	if ws, err = workspace.Open(at, workspace.Options{Log: testLog(t)}); err != nil {
		t.Fatal(err)
	}
	n := &Notifier{}
	end = guestSession(t, ws, k, n)
	pollOnce(t, k.dir) // it is served, so it has begun
	if err := n.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	v.isThen()
	for stale, err := ws.Unnotified(t.Context()); len(stale) > 0 || err != nil; stale, err = ws.Unnotified(t.Context()) {
		if err != nil || t.Context().Err() != nil {
			t.Fatal("what the kernel was told is told for ever", err)
		}
	}
	k.unmount()
	end()
	endEpochs(t, ws)
	check(t, ws)
	if err := ws.Close(); err != nil {
		t.Error(err)
	}
}

// restoreAndDie serves k from another process, which restores and is killed.
func restoreAndDie(t *testing.T, at string, k *kernel) {
	t.Helper()
	host, guest, err := socketFiles()
	if err != nil {
		t.Fatal(err)
	}
	cmd := helper(t, "serve-restore", at)
	cmd.ExtraFiles = []*os.File{host}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	host.Close()
	attached := make(chan struct{})
	conn := fileConn(t, guest)
	go func() {
		defer close(attached)
		if err := k.attach(conn); !ended(err) {
			t.Errorf("guest's kernel: %v", err)
		}
	}()
	pollOnce(t, k.dir)
	fmt.Fprintln(in, "restore")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Errorf("the other daemon says %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	<-attached
}
