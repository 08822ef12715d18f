package daemon_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"holt"
)

// TestUploadSurvivesKill: a file that was half sent when the daemon was killed (kill -9) is gone on with where it stood, at whichever step it
// was, and a commit that was cut off is done by its repeat; what is there is what was sent.
func TestUploadSurvivesKill(t *testing.T) {
	data := make([]byte, 1<<20+123)
	for i := range data {
		data[i] = byte(i * 7 >> 5)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	for _, kill := range []string{"upload/append 2", "upload/written"} {
		dir := home(t)
		first := spawn(t, dir, kill)
		c, ctx := first.Client, t.Context()
		if _, err := c.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: "notes"}, ""); err != nil {
			t.Fatal(err)
		}
		u, err := c.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/big", Size: int64(len(data)), SHA256: sum}, "begin")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Uploads.Append(ctx, u.ID, 0, "", bytes.NewReader(data)); err == nil {
			short, cancel := context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.Uploads.Commit(short, u.ID, holt.UploadCommit{})
			}()
			first.wait()
			cancel()
			<-ended
		} else {
			first.wait()
		}

		next := spawn(t, dir, "")
		c = next.Client
		again, err := c.Uploads.Create(ctx, holt.UploadSpec{Workspace: "notes", Path: "/big", Size: int64(len(data)), SHA256: sum}, "begin")
		if err != nil || again.ID != u.ID {
			t.Errorf("%s: the repeated create: %+v, %v", kill, again, err)
		}
		if u, err = c.Uploads.Halt(ctx, u.ID); err != nil || u.Offset < 512<<10 {
			t.Fatalf("%s: the next daemon has %+v, %v", kill, u, err)
		}
		if u, err = c.Uploads.Append(ctx, u.ID, u.Offset, "", bytes.NewReader(data[u.Offset:])); err == nil {
			u, err = c.Uploads.Commit(ctx, u.ID, holt.UploadCommit{})
		}
		if err != nil || u.State != holt.UploadDone {
			t.Fatalf("%s: %+v, %v", kill, u, err)
		}
		var got bytes.Buffer
		if err := c.WorkspaceFiles.Read(ctx, "notes", "/big", 0, -1, &got); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%s: %d bytes are there, %v", kill, got.Len(), err)
		}
		endDaemon(t, next)
	}
}

// TestEventsSurviveKill: whoever follows events goes on behind the last one that he got when the daemon was killed, and misses and doubles none.
func TestEventsSurviveKill(t *testing.T) {
	dir := home(t)
	first := spawn(t, dir, "")
	c, ctx := first.Client, t.Context()
	begun, told := make(chan struct{}), make(chan error, 1)
	names, ready := []string{}, false
	go func() {
		told <- c.Events.Follow(ctx, holt.EventQuery{Follow: true, Kinds: []string{"workspace.created"}}, func(e holt.Event) error {
			switch {
			case e.Kind == holt.EventReady && !ready:
				ready = true
				close(begun)
			case e.Kind != holt.EventReady:
				names = append(names, string(e.Kind)+" "+e.Name)
			}
			if e.Name == "w5" {
				return errSeen
			}
			return nil
		})
	}()
	<-begun
	make := func(d *process, name string) {
		t.Helper()
		if _, err := d.Workspaces.Create(ctx, holt.WorkspaceSpec{Name: name}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		make(first, name)
	}
	first.kill()
	next := spawn(t, dir, "")
	for _, name := range []string{"w4", "w5"} {
		make(next, name)
	}
	if err := <-told; err != errSeen {
		t.Fatal(err)
	}
	if got := strings.Join(names, ", "); got != "workspace.created w1, workspace.created w2, workspace.created w3, workspace.created w4, workspace.created w5" {
		t.Errorf("told: %s", got)
	}
	endDaemon(t, next)
}

// endDaemon has a daemon end with all that is in it.
func endDaemon(t *testing.T, p *process) {
	t.Helper()
	if _, err := p.Daemon.Down(t.Context(), holt.DownSpec{}, ""); err != nil {
		t.Error(err)
	}
	p.wait()
}

var errSeen = holt.Errorf(holt.Conflict, "seen")
