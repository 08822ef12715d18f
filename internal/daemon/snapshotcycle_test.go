package daemon_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holt"
	"holt/internal/door/httpapi/servertest"
)

// half is a line that somebody has begun to type, and has not sent.
const half = `echo "$X:`

// sit opens a terminal, sets a variable in its shell, and leaves a line half-typed.
func (v *vm) sit(computer string) {
	v.t.Helper()
	spec := holt.TerminalSpec{Argv: holt.OSStrings{"/bin/bash", "--norc"}, Env: map[holt.OSString]holt.OSString{"TERM": "dumb", "PS1": "> "}}
	if _, err := v.Terminals.Open(v.t.Context(), computer, spec, ""); err != nil {
		v.t.Fatal(err)
	}
	s := servertest.Watch(v.t, servertest.ClientNouns(v.Client), computer, "main", holt.AttachSpec{Offset: -1})
	s.Shows(v.t, "> ")
	s.Type(v.t, "X=begun; echo se''t\n")
	s.Shows(v.t, "\nset\r\n> ")
	v.leave(s, "\nset\r\n> ")
}

// typed sends the line that is half-typed in a computer's terminal, and begins the
// next. The terminal shows again what it showed last.
func (v *vm) typed(computer string) {
	v.t.Helper()
	word := v.another(computer)
	s := servertest.Watch(v.t, servertest.ClientNouns(v.Client), computer, "main", holt.AttachSpec{Offset: -1})
	s.Shows(v.t, half)
	if text := s.Text(); !strings.Contains(text, "\nset\r\n> ") {
		v.t.Errorf("%s: what its terminal showed first is gone: %q", computer, text)
	}
	s.Type(v.t, word+"\"\n")
	s.Shows(v.t, "\nbegun:"+word+"\r\n> ")
	v.leave(s, "\nbegun:"+word+"\r\n> ")
}

// leave types the half of a line after a prompt, and detaches.
func (v *vm) leave(s *servertest.Screen, prompt string) {
	v.t.Helper()
	s.Type(v.t, half)
	s.Shows(v.t, prompt+half)
	s.Stop()
	<-s.Done
}

// pauses pauses einstein and resumes it, again and again; each time another daemon
// but one does so. It returns how far the counter is.
//
// The first two are as a pause of a year is: the guest's clock is set back by that. What a guest has of
// time when it goes on is what its memory had then, and the host tells it the present, not how
// long it was paused.
func (v *vm) pauses(times, least int) int {
	t := v.t
	t.Helper()
	for i := range times {
		if i < 2 && v.virtual() {
			v.says("einstein", "date -s '1 year ago'")
		}
		began := time.Now()
		if c, err := v.Computers.Pause(t.Context(), "einstein", ""); err != nil || c.State != holt.ComputerPaused {
			t.Fatalf("pause %d: %+v %v", i, c, err)
		}
		paused := time.Since(began)
		if i%2 == 1 {
			v.kill()
			v.again("")
		}
		began = time.Now()
		if c, err := v.Computers.Resume(t.Context(), "einstein", ""); err != nil || c.State != holt.ComputerRunning {
			t.Fatalf("resume %d: %+v %v", i, c, err)
		}
		t.Logf("cycle %d: paused in %v, resumed in %v", i, paused, time.Since(began))
		v.clock("einstein")
		v.stamps("einstein")
		v.cut("einstein")
		least = v.whole("einstein", least)
	}
	v.apart("einstein")
	return least
}

// forksOfForks forks einstein, and its fork, and so on. Each parent goes on, and is deleted then.
// It returns the last one's name.
func (v *vm) forksOfForks(times, least int) string {
	t, parent := v.t, "einstein"
	t.Helper()
	for i := range times {
		began, name := time.Now(), fmt.Sprintf("fork-%d", i)
		if _, err := v.Computers.Fork(t.Context(), parent, holt.ComputerForkSpec{Name: name}, ""); err != nil {
			t.Fatalf("fork %d: %v", i, err)
		}
		t.Logf("fork of fork %d: in %v", i, time.Since(began))
		v.copies(parent, name)
		v.linked(parent)
		v.cut(name)
		v.whole(parent, least)
		least = v.whole(name, least)
		v.remove(parent)
		parent = name
	}
	return parent
}

// merges pauses a computer that has come a long way: of the disks that snapshots have
// left beneath it, one stays, which holds all that they did.
func (v *vm) merges(computer string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	v.says(computer, "echo of the root disk >/etc/mark && sync /etc/mark")
	before := len(namesIn(t, filepath.Join(v.dir, "disks")))
	c, err := v.Computers.Pause(ctx, computer, "")
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := v.Snapshots.List(ctx, computer)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range snapshots {
		if m.ID == c.Snapshot {
			continue
		}
		if _, err := v.Snapshots.Delete(ctx, string(m.ID), ""); err != nil {
			t.Error(err)
		}
	}
	disks := namesIn(t, filepath.Join(v.dir, "disks"))
	for end := time.Now().Add(patience); len(disks) > 2; time.Sleep(10 * time.Millisecond) { // frozen with the snapshot, and over that
		if disks = namesIn(t, filepath.Join(v.dir, "disks")); time.Now().After(end) {
			t.Fatalf("disks were not merged: %v", disks)
		}
	}
	t.Logf("%d disks became %d", before, len(disks))
	if got := v.says(computer, "cat /etc/mark && cd / && cat /var/lib/dpkg/info/{bash,coreutils}.md5sums | grep bin/ | md5sum -c --quiet"); got != "of the root disk" {
		t.Errorf("after its disks were merged: %q", got)
	}
	v.whole(computer, 0)
}

// nothingKept fails the test unless all that computers had is gone.
func (v *vm) nothingKept() {
	v.t.Helper()
	within(v.t, "a copy of disks that are gone to go", func() bool { return len(namesIn(v.t, filepath.Join(v.dir, "disks"))) == 0 })
	for _, sub := range []string{"computers", "workspaces", "snapshots", "disks", "templates"} {
		if names := namesIn(v.t, filepath.Join(v.dir, sub)); len(names) > 0 {
			v.t.Errorf("%s holds %v", sub, names)
		}
	}
	v.nothingArchived()
}
