package machine

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// sleeper starts a process that sleeps until the test ends.
func sleeper(t *testing.T, inherit ...*os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	cmd.ExtraFiles = inherit
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}

func TestProcess(t *testing.T) {
	cmd := sleeper(t)
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	idle, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	idle.Close() // while it waits
	select {
	case <-idle.Done():
		t.Error("closing a handle is the end of the process")
	case <-h.Done():
		t.Error("a living process is done")
	default:
	}
	if err := idle.Signal(unix.SIGTERM); !errors.Is(err, os.ErrClosed) {
		t.Errorf("signal through a closed handle: %v", err)
	}
	if err := h.Kill(); err != nil { // a zombie from here on: nobody has waited
		t.Fatal(err)
	}
	<-h.Done()
	cmd.Wait()
	if err := h.Signal(0); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a dead process: %v", err)
	}
	if _, err := p.Open(); !errors.Is(err, ErrGone) {
		t.Errorf("open a dead process: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill a dead process: %v", err)
	}
}

func TestReusedPID(t *testing.T) {
	cmd := sleeper(t)
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for name, other := range map[string]Process{
		"another start": {p.PID, p.Start + 1, p.BootID},
		"another boot":  {p.PID, p.Start, "00000000-0000-0000-0000-000000000000"},
		"nobody":        {1 << 30, p.Start, p.BootID},
		"no process id": {0, p.Start, p.BootID},
		"negative":      {-1, p.Start, p.BootID},
	} {
		if _, err := other.Open(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: open: %v", name, err)
		}
		if err := other.Kill(); err != nil {
			t.Errorf("%s: kill: %v", name, err)
		}
	}
	if now, err := Identify(p.PID); err != nil || now != p {
		t.Errorf("the process was harmed: %v, %v", now, err)
	}
}

func TestParseStart(t *testing.T) {
	fields := " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20"
	for _, stat := range []string{"7 (sleep)" + fields, "7 (a) b (c) 1 2)" + fields} {
		if start, err := parseStart([]byte(stat)); err != nil || start != 424242 {
			t.Errorf("%q: %d, %v", stat, start, err)
		}
	}
	for stat, stopped := range map[string]bool{"7 (a) T b) T 1": true, "7 (a) T b) S 1": false, "7 (a) t 1": false, "7 (T": false, "": false} {
		if parseStopped([]byte(stat)) != stopped {
			t.Errorf("%q: is not taken for stopped=%v", stat, stopped)
		}
	}
	for _, stat := range []string{"", "7 (sleep) S", "7 (sleep"} {
		if _, err := parseStart([]byte(stat)); err == nil {
			t.Errorf("%q: parsed", stat)
		}
	}
}
