package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// permanent is an error that polling cannot mend.
type permanent struct{ error }

// poll calls try until it succeeds, fails for good, or the limit passes; with growing pauses, up to four times as long,
// since a try takes processor time from what it waits for.
func poll(limit, pause time.Duration, try func() error) error {
	deadline, longest := time.Now().Add(limit), 4*pause
	for {
		err := try()
		var final permanent
		if err == nil || errors.As(err, &final) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
		pause = min(pause*5/4, longest)
	}
}

func daemonOf(ts *testscript.TestScript) *daemon { return ts.Value(daemonKey{}).(*daemon) }

// cmdDaemon: daemon start | kill (SIGKILL) | stop (SIGTERM) | torment N WORKSPACE.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	d := daemonOf(ts)
	if len(args) == 3 && args[0] == "torment" {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		ts.Check(d.torment(ts, n, args[2]))
		return
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: daemon start|kill|stop|torment N WORKSPACE")
	}
	switch args[0] {
	case "start":
		ts.Check(d.start())
	case "kill":
		ts.Check(d.signal(syscall.SIGKILL))
	case "stop":
		ts.Check(d.signal(syscall.SIGTERM))
	default:
		ts.Fatalf("unknown: daemon %s", args[0])
	}
}

// cmdKillVM: killvm COMPUTER sends SIGKILL to the computer's machine process.
func cmdKillVM(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: killvm COMPUTER")
	}
	dir, err := daemonOf(ts).computerDir(args[0])
	ts.Check(err)
	b, err := os.ReadFile(filepath.Join(dir, "machine.json"))
	ts.Check(err)
	var m struct {
		Process struct {
			PID int `json:"pid"`
		} `json:"process"`
	}
	ts.Check(json.Unmarshal(b, &m))
	if m.Process.PID <= 1 {
		ts.Fatalf("no pid in machine.json: %s", b)
	}
	ts.Check(syscall.Kill(m.Process.PID, syscall.SIGKILL))
}

// cmdEventually: eventually DURATION PROGRAM ARGS… runs the program until it
// exits with status 0.
func cmdEventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually DURATION PROGRAM ARGS…")
	}
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	d := daemonOf(ts)
	var out []byte
	err = poll(limit, 250*time.Millisecond, func() error {
		cmd := exec.Command(args[1], args[2:]...)
		if args[1] == "holt" {
			cmd.Path = filepath.Join(binDir, "holt")
			cmd.Err = nil
		}
		cmd.Env, cmd.Dir = d.env.Vars, ts.Getenv("WORK")
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		ts.Fatalf("eventually %v: %v\n%s", args[1:], err, out)
	}
}

// cmdNothing: nothing left DIR fails if a process lives in DIR, or a mount or the
// file of a loop device lies below it.
func cmdNothing(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[0] != "left" {
		ts.Fatalf("usage: nothing left DIR")
	}
	ts.Check(leftovers(ts.MkAbs(args[1])))
}

// cmdSmallDisk: smalldisk SIZE puts the data directory on a tmpfs of that size.
func cmdSmallDisk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: smalldisk SIZE")
	}
	d := daemonOf(ts)
	ts.Check(os.MkdirAll(d.data, 0o700))
	ts.Check(syscall.Mount("tmpfs", d.data, "tmpfs", 0, "mode=700,size="+args[0]))
	d.disk = d.data
}
