package local_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
	"holt/internal/guest/mount"
	"holt/internal/workspace"
)

// TestKillWithoutFileServer: processes of the machine, and threads of the
// agent, wait in the kernel for a workspace that is not served.
func TestKillWithoutFileServer(t *testing.T) {
	m, client := startAgent(t)
	ws, err := workspace.Create(filepath.Join(t.TempDir(), "ws"), workspace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	conn, err := m.Dial(t.Context(), machine.PortFiles)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err = channel.Dial(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { mount.Guest(ctx, ws, conn, mount.GuestOptions{}) })
	until(t, "the workspace", func() bool {
		h, err := client.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h.Workspace == agent.Served
	})
	stop()
	serving.Wait()

	var asking sync.WaitGroup
	defer asking.Wait()
	defer client.Close()
	asking.Go(func() { client.ReadFile(t.Context(), "/home/agent/one", 0, -1, io.Discard) }) // a thread of PID 1
	asking.Go(func() {
		client.List(t.Context(), "/home/agent/dir", 0, 10, func(holt.FileInfo, int64) error { return nil })
	})
	id := holt.NewRunID()
	if _, err := client.StartRun(t.Context(), id, holt.RunSpec{
		Command: "cat /home/agent/two", User: "root", Cwd: "/",
	}); err != nil {
		t.Fatal(err)
	}
	until(t, "three requests to wait", func() bool { return waiting(t, m.PID()) >= 3 })
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
}

// waiting counts the threads in the machine's PID namespace that wait for a
// FUSE answer.
func waiting(t *testing.T, pid int) int {
	t.Helper()
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, thread := range threads {
		where, err := os.Readlink(filepath.Join(thread, "ns/pid"))
		if err != nil || where != ns {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(thread, "wchan")); err == nil && string(b) == "request_wait_answer" {
			n++
		}
	}
	return n
}
