package daemon_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// outputOf follows a run from an offset to its end and returns its events, without the last, and how it ended.
func outputOf(t *testing.T, p *process, id holt.RunID, offset int64) (events []holt.RunEvent, end holt.Run) {
	t.Helper()
	err := p.Runs.Follow(t.Context(), id, offset, func(e holt.RunEvent) error {
		if e.Run != nil {
			end = *e.Run
			return nil
		}
		e.Data = bytes.Clone(e.Data)
		events = append(events, e)
		return nil
	})
	if err != nil {
		t.Fatalf("follow %s: %v", id, err)
	}
	return events, end
}

// begin starts a run in curie.
func begin(t *testing.T, p *process, spec holt.RunSpec) holt.RunID {
	t.Helper()
	spec.User = "root"
	r, err := p.Runs.Start(t.Context(), "curie", spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// keptIn returns where the output of a run is kept, or will be.
func keptIn(dir string, c holt.Computer, id holt.RunID) string {
	return filepath.Join(dir, "computers", string(c.ID), "output", string(id))
}

// curie makes a computer in a daemon that kills itself at a step, if kill names one.
func curie(t *testing.T, kill string) (dir string, p *process, c holt.Computer) {
	t.Helper()
	dir = home(t)
	p = spawn(t, dir, kill)
	c, err := p.Computers.Create(t.Context(), holt.ComputerSpec{Name: "curie"}, "")
	if err != nil {
		t.Fatal(err)
	}
	return dir, p, c
}

// TestOutputSurvivesStop: what runs wrote, also one that goes on until then, is there after their
// computer was stopped: the streams apart, secrets masked, from any offset, and what is too much
// marked. Nothing of it starts the computer.
func TestOutputSurvivesStop(t *testing.T) {
	dir, p, c := curie(t, "")
	const secret = "correct-horse"
	ended := begin(t, p, holt.RunSpec{Command: "echo out; sleep 0.2; echo err $KEY >&2; exit 3", Secrets: holt.Secrets{"KEY": secret}})
	outputOf(t, p, ended, 0)
	const much = 3 << 20
	large := begin(t, p, holt.RunSpec{Command: `head -c 3145728 /dev/zero | tr '\0' x; echo end`})
	going := begin(t, p, holt.RunSpec{Command: "echo begun; exec sleep 1000"})
	until(t, p, going, 0, "begun\n")
	outputOf(t, p, large, 0)
	if _, err := p.Computers.Stop(t.Context(), "curie", ""); err != nil {
		t.Fatal(err)
	}
	look := func() {
		t.Helper()
		want := []holt.RunEvent{{Kind: holt.RunStdout, Data: []byte("out\n")}, {Kind: holt.RunStderr, Offset: 4, Data: []byte("err ***\n")}}
		events, run := outputOf(t, p, ended, 0)
		if diff := cmp.Diff(want, events); diff != "" || run.State != holt.RunExited || run.ExitCode != 3 {
			t.Errorf("%+v %s", run, diff)
		}
		if events, _ := outputOf(t, p, ended, 8); len(events) != 1 || events[0].Offset != 8 || string(events[0].Data) != "***\n" {
			t.Errorf("from an offset: %+v", events)
		}
		if events, run := outputOf(t, p, going, 0); len(events) != 1 || string(events[0].Data) != "begun\n" || run.State != holt.RunLost {
			t.Errorf("of the one that went on: %+v %+v", events, run)
		}
		events, run = outputOf(t, p, large, 0)
		text := ""
		for _, e := range events {
			text += string(e.Data)
		}
		if len(events) == 0 {
			t.Error("nothing of a long one")
		} else if gap := events[0]; gap.Kind != holt.RunGap || gap.Dropped+int64(len(text)) != much+4 || len(text) < 900<<10 || len(text) > 1<<20 ||
			!strings.HasSuffix(text, "xend\n") || run.State != holt.RunExited {
			t.Errorf("of a long one: %+v, then %d bytes; %+v", gap, len(text), run)
		}
		if b, err := os.ReadFile(keptIn(dir, c, ended)); err != nil || bytes.Contains(b, []byte(secret)) || !bytes.Contains(b, []byte("***")) {
			t.Errorf("%q %v", b, err)
		}
	}
	look()
	if c, err := p.Computers.Get(t.Context(), "curie"); err != nil || c.State != holt.ComputerStopped {
		t.Errorf("%+v %v", c, err)
	}
	p.kill()
	p = spawn(t, dir, "")
	look()
	if _, err := p.Computers.Start(t.Context(), "curie", ""); err != nil {
		t.Fatal(err)
	}
	look() // this guest has never heard of them
	if _, err := p.Computers.Delete(t.Context(), "curie", ""); err != nil {
		t.Error(err)
	}
	empty(t, dir)
	endAll(t, p)
}

// TestOutputSurvivesMachine: what a run wrote that has ended is kept at once, whatever becomes of
// its machine.
func TestOutputSurvivesMachine(t *testing.T) {
	dir, p, c := curie(t, "")
	id := begin(t, p, holt.RunSpec{Command: "echo kept"}) // nobody follows it
	within(t, "its output to be kept", func() bool {
		_, err := os.Stat(keptIn(dir, c, id))
		return err == nil
	})
	killMachine(t, dir, c.ID)
	within(t, "the computer to stop", func() bool { return settle(t, p, "curie").State == holt.ComputerStopped })
	if events, run := outputOf(t, p, id, 0); len(events) != 1 || string(events[0].Data) != "kept\n" || run.State != holt.RunExited {
		t.Errorf("%+v %+v", events, run)
	}
	endAll(t, p)
}

// TestKilledAtOutput: a daemon is killed while it keeps a run's output. The next one takes it from
// the guest again; if that has ended, too, nothing half-done is left.
func TestKilledAtOutput(t *testing.T) {
	for point, left := range map[string]string{"run/output": "", "run/kept": "kept\n"} {
		for _, lives := range []bool{true, false} {
			want, name := left, strings.ReplaceAll(point, "/", "-")
			if !lives {
				name += "-and-machine"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dir, p, c := curie(t, point)
				id := begin(t, p, holt.RunSpec{Command: "sleep 0.5; echo kept"})
				p.wait()
				if !lives {
					killMachine(t, dir, c.ID)
				}
				p = spawn(t, dir, "")
				if lives {
					want = "kept\n"
					within(t, "its output to be kept", func() bool {
						b, err := os.ReadFile(keptIn(dir, c, id))
						return err == nil && bytes.HasSuffix(b, []byte(want))
					})
					if _, err := p.Computers.Stop(t.Context(), "curie", ""); err != nil {
						t.Fatal(err)
					}
				}
				got := ""
				events, run := outputOf(t, p, id, 0)
				for _, e := range events {
					got += string(e.Data)
				}
				if got != want || run.State == holt.RunRunning {
					t.Errorf("%q, not %q; %+v", got, want, run)
				}
				files, err := os.ReadDir(filepath.Dir(keptIn(dir, c, id)))
				if err != nil && !errors.Is(err, os.ErrNotExist) || len(files) > 1 || len(files) == 1 && want == "" {
					t.Errorf("%v %v", files, err)
				}
				endAll(t, p)
			})
		}
	}
}

// TestOutputOfPaused: what runs have written is there while their computer is paused, and does not
// wake it; that of one that goes on is kept in case it never does.
func TestOutputOfPaused(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	c, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 512}, "")
	if err != nil {
		t.Fatal(err)
	}
	ended := begin(t, v.process, holt.RunSpec{Command: "echo out"})
	outputOf(t, v.process, ended, 0)
	going := begin(t, v.process, holt.RunSpec{Command: "echo begun; read go; echo on; exec sleep 100000", Stdin: true})
	until(t, v.process, going, 0, "begun\n")
	pause := func(said string) {
		t.Helper()
		if _, err := v.Computers.Pause(ctx, "curie", ""); err != nil {
			t.Fatal(err)
		}
		events, run := outputOf(t, v.process, ended, 0)
		if len(events) != 1 || string(events[0].Data) != "out\n" || run.State != holt.RunExited {
			t.Errorf("%+v %+v", events, run)
		}
		until(t, v.process, going, 0, said)
		if c, err := v.Computers.Get(ctx, "curie"); err != nil || c.State != holt.ComputerPaused {
			t.Errorf("%+v %v", c, err)
		}
	}
	pause("begun\n")
	v.says("curie", "true")                                     // which lets it go on
	if _, err := os.Stat(keptIn(v.dir, c, going)); err != nil { // its machine may be killed
		t.Error(err)
	}
	if _, err := v.Runs.Input(ctx, going, 0, strings.NewReader("\n"), false, false); err != nil {
		t.Fatal(err)
	}
	until(t, v.process, going, 0, "begun\non\n")
	pause("begun\non\n")
	if _, err := v.Computers.Stop(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	events, run := outputOf(t, v.process, going, 0)
	if len(events) != 1 || string(events[0].Data) != "begun\non\n" || run.State != holt.RunLost {
		t.Errorf("%+v %+v", events, run)
	}
	endAll(t, v.process)
}

// TestOutputSurvivesOthers: what a guest drops of a run's output, since later ones wrote much, is
// there for who follows it.
func TestOutputSurvivesOthers(t *testing.T) {
	d := up(t, config(t, home(t)))
	create(t, d, holt.ComputerSpec{Name: "curie"})
	first := run(t, d, "curie", `head -c 3999995 /dev/zero | tr '\0' x; echo last`)
	for range 16 { // of those that have ended a guest has 64 MiB
		r, err := d.Computers().Runs().Start(t.Context(), "curie", holt.RunSpec{Command: "head -c 4000000 /dev/zero", User: "root"}, "")
		if err != nil {
			t.Fatal(err)
		}
		awaitExit(t, d, r.ID)
	}
	if res := follow(t, d, first.ID, 3999990); res.out != "xxxxxlast\n" {
		t.Errorf("%q", res.out)
	}
}
