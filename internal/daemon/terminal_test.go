package daemon_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/daemon"
	"holt/internal/door/httpapi/servertest"
)

// TestTerminalSurvivesDaemon: while somebody types into a terminal its daemon is
// killed, again and again. Nothing typed is lost or doubled, and nothing shown.
func TestTerminalSurvivesDaemon(t *testing.T) {
	dir := home(t)
	p := spawn(t, dir, "")
	if _, err := p.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, ""); err != nil {
		t.Fatal(err)
	}
	const pieces, size = 300, 2000
	spec := holt.TerminalSpec{User: "root", Command: holt.OSString(fmt.Sprintf(`stty raw -echo; echo ready; head -c %d | tee typed | sha256sum; wc -c < typed; exit 4`, pieces*size))}
	if _, err := p.Terminals.Open(t.Context(), "curie", spec, ""); err != nil {
		t.Fatal(err)
	}
	client := connect(t, dir)
	s := servertest.Watch(t, servertest.ClientNouns(client), "curie", "main", holt.AttachSpec{Offset: -1})
	s.Shows(t, "ready")
	var all strings.Builder
	for i := range pieces {
		piece := strings.Repeat(fmt.Sprintf("%03d ", i), size/4)
		all.WriteString(piece)
		s.Type(t, piece)
		if i%100 == 50 {
			p.kill()
			p = spawn(t, dir, "")
		}
	}
	end := s.Exit(t)
	want := fmt.Sprintf("ready\r\n%x  -\n%d\n", sha256.Sum256([]byte(all.String())), pieces*size)
	if got := strings.ReplaceAll(s.Text(), "\r", ""); end.ExitCode != 4 || got != strings.ReplaceAll(want, "\r", "") {
		t.Errorf("ended as %+v:\n%q, want\n%q", end, got, want)
	}
	p.kill()
	p = spawn(t, dir, "") // what ended is on record
	if got, err := p.Terminals.Get(t.Context(), "curie", "main"); err != nil || got.State != holt.TerminalExited || got.ExitCode != 4 {
		t.Errorf("after the kill: %+v %v", got, err)
	}
	endAll(t, p)
}

// TestTerminalWriter: what a terminal changes is its own, and a stopped
// computer has lost those that ran.
func TestTerminalWriter(t *testing.T) {
	cfg := config(t, home(t))
	cfg.Limits = computer.Limits{Quiet: time.Hour, Stretch: time.Hour, Leave: time.Hour} // only undos end a stretch, however slow the host
	d := up(t, cfg)
	create(t, d, holt.ComputerSpec{Name: "curie"})
	ctx, terminals := t.Context(), d.Computers().Terminals()
	succeeds(t, d, "curie", "echo kept > /home/agent/src")
	info, err := terminals.Open(ctx, "curie", holt.TerminalSpec{User: "root", Env: map[holt.OSString]holt.OSString{"PS1": "> ", "SECRET": "x"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.Watch(t, d.Nouns(), "curie", "main", holt.AttachSpec{Offset: -1})
	s.Type(t, "echo hello > /home/agent/notes; echo do''ne\n")
	s.Shows(t, "done")
	by, err := d.Workspaces().History().Blame(ctx, "curie", "/notes")
	if err != nil || by.Kind != "terminal" || by.Terminal != string(info.ID) || by.Name != "agent" {
		t.Errorf("written by %+v, %v; want terminal %s", by, err, info.ID)
	}
	got, err := d.Workspaces().Query(ctx, "curie", holt.QuerySpec{SQL: "SELECT writer, terminal FROM files WHERE path = '/notes'"})
	if err != nil || fmt.Sprint(got.Rows) != fmt.Sprintf("[[agent %s]]", info.ID) {
		t.Errorf("query: %+v, %v", got, err)
	}
	undoesWork(t, d, s, info)
	if _, err := d.Computers().Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	lost, err := terminals.Get(ctx, "curie", "main")
	if killed := lost.Signal == "SIGKILL"; err != nil || lost.State != holt.TerminalLost && !killed || lost.Spec.Env != nil { // the guest may still say how it ended
		t.Errorf("after the stop: %+v, %v", lost, err)
	}
	after := servertest.Watch(t, d.Nouns(), "curie", "main", holt.AttachSpec{Offset: -1})
	if end := after.Exit(t); end.State != lost.State {
		t.Errorf("attached after the stop: %+v", end)
	}
	wantCode(t, terminals.Signal(ctx, "curie", "main", "SIGINT", ""), holt.Conflict)
	next, err := terminals.Open(ctx, "curie", holt.TerminalSpec{User: "root"}, "") // wakes it
	if err != nil || next.ID == info.ID {
		t.Errorf("opened after the stop: %+v, %v", next, err)
	}
}

// undoesWork shows that what is done in a terminal can be taken back, also while
// somebody is attached, and that what is done after that is another stretch.
func undoesWork(t *testing.T, d *daemon.Daemon, s *servertest.Screen, info holt.Terminal) {
	t.Helper()
	ctx, h := t.Context(), d.Workspaces().History()
	before := len(servertest.Must(h.Checkpoints(ctx, "curie"))(t))
	first := servertest.Must(h.Blame(ctx, "curie", "/notes"))(t).Run
	s.Type(t, "rm /home/agent/src; echo go''ne\n")
	s.Shows(t, "gone")
	report, err := h.Undo(ctx, "curie", holt.UndoSpec{Run: "main"}, "")
	if err != nil || len(report.Conflicts) > 0 || countsOf(report.Counts) != counts(1, 0, 1, 0) {
		t.Fatalf("undo of the terminal: %+v, %v", report, err)
	}
	if stretch, err := holt.ParseStretchID(report.Run); err != nil || report.Run != first || !strings.HasPrefix(string(stretch), string(info.ID)) {
		t.Errorf("undone: %s, %v; want the stretch of terminal %s, %s", report.Run, err, info.ID, first)
	}
	if got := read(t, d, "curie", "/home/agent/src"); got != "kept\n" {
		t.Errorf("after the undo: %q", got)
	}
	// What is done after an undo is another stretch: it begins with a checkpoint.
	s.Type(t, "rm /home/agent/src; echo aga''in\n")
	s.Shows(t, "again")
	all := servertest.Must(h.Checkpoints(ctx, "curie"))(t)
	if last := all[len(all)-1]; len(all) != before+2 || !last.Auto || last.Note != "before work in terminal main" {
		t.Errorf("checkpoints: %+v", all[before:])
	}
	if r := servertest.Must(h.Receipt(ctx, "curie", string(info.ID)))(t); r.Run == first || countsOf(r.Counts) != counts(1, 0, 0, 0) {
		t.Errorf("receipt of the last stretch: %+v", r)
	}
	if report, err = h.Undo(ctx, "curie", holt.UndoSpec{Run: "main"}, ""); err != nil || countsOf(report.Counts) != counts(0, 0, 1, 0) {
		t.Errorf("undo of the last stretch: %+v, %v", report, err)
	}
	// An undo that takes no checkpoint leaves the stretch its own.
	s.Type(t, "rm /home/agent/src; echo on''ce more\n")
	s.Shows(t, "once more")
	_, err = h.Undo(ctx, "curie", holt.UndoSpec{Run: "nobody"}, "")
	wantCode(t, err, holt.NotFound)
	within(t, "a checkpoint after the work", func() bool {
		all := servertest.Must(h.Checkpoints(ctx, "curie"))(t)
		return strings.HasPrefix(all[len(all)-1].Note, "after work in terminal main")
	})
}
