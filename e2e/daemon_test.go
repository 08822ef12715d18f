package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

type daemonKey struct{}

// patience bounds how long a story waits for what must come; nothing asserts how
// long it takes.
const patience = 10 * time.Minute

// daemon is the `holt serve` of one story.
type daemon struct {
	env    *testscript.Env
	data   string
	engine string
	cmd    *exec.Cmd
	exited chan error
	log    *os.File
	disk   string // a small file system under the data directory, or ""
}

func (d *daemon) start() error {
	if d.cmd != nil {
		return fmt.Errorf("the daemon is running")
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(d.env.WorkDir, "daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(binDir, "holt"), "serve", "--engine", d.engine, "--renew-after", "0") // what other stories boot is nothing to this one
	cmd.Env = d.env.Vars
	cmd.Dir = d.env.WorkDir
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	d.cmd, d.log, d.exited = cmd, log, make(chan error, 1)
	go func() { d.exited <- cmd.Wait() }()
	return d.await(patience)
}

// await returns when the daemon answers.
func (d *daemon) await(limit time.Duration) error {
	return poll(limit, 50*time.Millisecond, func() error {
		select {
		case err := <-d.exited:
			d.cmd = nil
			return permanent{fmt.Errorf("daemon ended: %v\n%s", err, d.tail())}
		default:
		}
		out, err := d.holt("computer", "list", "--json")
		if err != nil {
			return fmt.Errorf("daemon does not answer: %w\n%s%s", err, out, d.tail())
		}
		return nil
	})
}

func (d *daemon) holt(args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(binDir, "holt"), args...)
	cmd.Env = d.env.Vars
	return cmd.CombinedOutput()
}

func (d *daemon) signal(sig syscall.Signal) error {
	if d.cmd == nil {
		return fmt.Errorf("no daemon")
	}
	if err := d.cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-d.exited:
	case <-time.After(patience):
		return fmt.Errorf("the daemon did not end after %v\n%s", sig, d.tail())
	}
	d.cmd = nil
	return d.log.Close()
}

func (d *daemon) tail() string {
	b, _ := os.ReadFile(filepath.Join(d.env.WorkDir, "daemon.log"))
	return string(b[max(0, len(b)-8<<10):])
}

// end inspects what the story left: every workspace checks clean, `holt down`
// ends everything, and no process, mount or loop device of the story is left.
func (d *daemon) end() {
	err := d.inspect()
	if d.disk != "" {
		syscall.Unmount(d.disk, syscall.MNT_DETACH)
	}
	if err == nil {
		err = leftovers(d.env.WorkDir)
	}
	if t, ok := d.env.T().(interface{ Failed() bool }); err != nil || ok && t.Failed() {
		d.env.T().Log("daemon log:\n" + d.tail())
	}
	if err != nil {
		sweep(d.env.WorkDir)
		d.env.T().Fatal("at the end of the story: " + err.Error())
	}
}

func (d *daemon) inspect() error {
	if _, err := os.Stat(d.data); err != nil {
		return nil // the story never started a daemon
	}
	if d.cmd == nil {
		if err := d.start(); err != nil {
			return err
		}
	}
	if err := d.check(); err != nil {
		return err
	}
	if out, err := d.holt("down", "--stop"); err != nil {
		return fmt.Errorf("holt down: %w\n%s", err, out)
	}
	select {
	case <-d.exited:
		d.cmd = nil
	case <-time.After(patience):
		return fmt.Errorf("the daemon did not end after holt down")
	}
	return nil
}

// check runs holt workspace check on every workspace of the story.
func (d *daemon) check() error {
	out, err := d.holt("workspace", "list", "--json")
	if err != nil {
		return fmt.Errorf("list workspaces: %w\n%s", err, out)
	}
	var list []struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return fmt.Errorf("list workspaces: %w\n%s", err, out)
	}
	for _, w := range list {
		if out, err := d.holt("workspace", "check", w.Name); err != nil {
			return fmt.Errorf("check %s: %w\n%s", w.Name, err, out)
		}
	}
	return nil
}

// leftovers names the processes that live in dir, and the mounts and files of loop devices below it. What
// was killed and is still dying on a busy machine is given time for it.
func leftovers(dir string) error {
	return poll(time.Minute, 50*time.Millisecond, func() error {
		if pids := processes(dir); len(pids) > 0 {
			return fmt.Errorf("processes left: %v", pids)
		}
		if m := mounts(dir); len(m) > 0 {
			return fmt.Errorf("mounts left: %v", m)
		}
		if l := loops(dir); len(l) > 0 {
			return fmt.Errorf("loop devices left: %v", l)
		}
		return nil
	})
}

func processes(dir string) (pids []int) {
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range cwds {
		if cwd, err := os.Readlink(link); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+"/")) {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

func mounts(dir string) (dirs []string) {
	b, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			dirs = append(dirs, f[1])
		}
	}
	return dirs
}

func loops(dir string) (files []string) {
	all, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), dir+"/") {
			files = append(files, strings.TrimSpace(string(b)))
		}
	}
	return files
}

// sweep ends what a failed story left, so that the next one starts clean.
func sweep(dir string) {
	for _, pid := range processes(dir) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, m := range mounts(dir) {
		syscall.Unmount(m, syscall.MNT_DETACH)
	}
}

func (d *daemon) computerDir(name string) (string, error) {
	out, err := d.holt("computer", "get", name, "--json")
	if err != nil {
		return "", fmt.Errorf("get %s: %w\n%s", name, err, out)
	}
	var c struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(out, &c); err != nil {
		return "", fmt.Errorf("get %s: %w", name, err)
	}
	return filepath.Join(d.data, "computers", c.ID), nil
}
