package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// torment kills the daemon n times at random snapshots, and starts it again, while
// load.py runs in a computer, which has to be served again before the next one.
// Some kills have another close behind them, while the guest comes back; those
// do not count.
func (d *daemon) torment(ts *testscript.TestScript, n int, workspace string) error {
	random := rand.New(rand.NewSource(*seed))
	extra := 0
	kill := func(within time.Duration) error {
		time.Sleep(time.Duration(random.Int63n(int64(within)))) // the snapshot of the kill
		if err := d.signal(syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill: %w", err)
		}
		if err := d.start(); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		return nil
	}
	for i := range n {
		err := kill(1500 * time.Millisecond)
		if err == nil && random.Intn(4) == 0 {
			extra++
			err = kill(300 * time.Millisecond)
		}
		if err == nil {
			err = d.served(workspace)
		}
		if err != nil {
			return fmt.Errorf("kill %d of %d, with -seed %d: %w", i+1, n, *seed, err)
		}
	}
	ts.Logf("seed %d: %d kills, the guest was served after each; %d more before it was", *seed, n, extra)
	return nil
}

// served returns when the guest's load has been answered since the daemon began:
// it appends a line to its log after the other, so that the second new one tells
// of an answer to the first.
func (d *daemon) served(workspace string) error {
	lines := func() (int, error) {
		out, err := d.holt("workspace", "cat", workspace+":load/log")
		if err != nil {
			return 0, fmt.Errorf("read the load's log: %w\n%s", err, out)
		}
		return bytes.Count(out, []byte("\n")), nil
	}
	before, err := lines()
	if err != nil {
		return err
	}
	return poll(patience, 50*time.Millisecond, func() error {
		now, err := lines()
		if err == nil && now < before+2 {
			err = fmt.Errorf("the guest is not served: %d operations of it, %d when the daemon began\n%s", now, before, d.tail())
		}
		return err
	})
}

// cmdCrashes: crashes N COMPUTER runs writer.py in the computer, kills its
// machine after some synced files, starts it, and compares every synced file
// with what the writer printed; N times.
func cmdCrashes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: crashes N COMPUTER")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for round := range n {
		synced := crash(ts, args[1], round)
		if len(synced) == 0 {
			ts.Fatalf("round %d: no file was synced", round)
		}
		d := daemonOf(ts)
		out, err := d.holt("computer", "run", args[1], "cd synced && sha256sum *")
		if err != nil {
			ts.Fatalf("round %d: %v\n%s", round, err, out)
		}
		found := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 {
				found["synced/"+f[1]+" "+f[0]] = true
			}
		}
		for _, s := range synced {
			if !found[s] {
				ts.Fatalf("round %d: synced file is missing or torn: %s", round, s)
			}
		}
		ts.Logf("round %d: %d synced files whole", round, len(synced))
		ts.Check(d.check())
	}
}

// crash returns "name hash" of each file that the writer reported as synced
// before the machine was killed.
func crash(ts *testscript.TestScript, computer string, round int) (synced []string) {
	d := daemonOf(ts)
	cmd := exec.Command(filepath.Join(binDir, "holt"), "computer", "run", computer,
		"--env", fmt.Sprintf("SEED=%d", *seed), fmt.Sprintf("python3 writer.py %d", round))
	cmd.Env = d.env.Vars
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	enough := 10 + rand.New(rand.NewSource(*seed+int64(round))).Intn(20)
	scan := bufio.NewScanner(out)
	for scan.Scan() {
		f := strings.Fields(scan.Text())
		if len(f) != 3 {
			ts.Fatalf("writer said %q\n%s", scan.Text(), stderr.String())
		}
		synced = append(synced, f[0]+" "+f[2])
		if len(synced) == enough {
			cmdKillVM(ts, false, []string{computer})
		}
	}
	if err := cmd.Wait(); err == nil {
		ts.Fatalf("the run ended well although its machine was killed")
	}
	return synced
}
