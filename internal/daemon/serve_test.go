package daemon_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holt"
	"holt/client"
	"holt/internal/daemon"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
	"holt/internal/engine/machine/machinetest"
)

// The environment of a daemon that is a process of its own: this test binary
// executed again.
const (
	envDaemon    = "HOLT_TEST_DAEMON"    // its data directory
	envSandbox   = "HOLT_TEST_SANDBOX"   // the program that runs sandboxes
	envGuest     = "HOLT_TEST_GUEST"     // the guest agent's file
	envKill      = "HOLT_TEST_KILL"      // the step at which it kills itself
	envSnapshots = "HOLT_TEST_SNAPSHOTS" // bytes that the memory of snapshots may take; "": an eighth of the disk
	envRenew     = "HOLT_TEST_RENEW"     // how long after its start templates are booted again, a duration; "": never
)

// environments holds what the daemons of a test, by its name, have in their environment besides this process's:
// tests that change this process's cannot run beside others.
var environments sync.Map

// setenv sets a variable for the daemons that a test starts from now on.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	own, loaded := environments.LoadOrStore(t.Name(), map[string]string{})
	if !loaded {
		t.Cleanup(func() { environments.Delete(t.Name()) })
	}
	own.(map[string]string)[name] = value
}

// killArchive and a number: kill it at that step of packing and collecting,
// whichever that is. Segments are small.
const killArchive = "archive "

// full and a list of steps: there is no room at those. once: the first time only.
const (
	full = "full "
	once = "once "
)

// killAt returns what kills this process at a step, the first time or, with a number behind
// it, that time.
func killAt(kill string) func(point string) error {
	var failed atomic.Bool
	for _, kind := range []string{full, once} {
		if points, ok := strings.CutPrefix(kill, kind); ok {
			return func(point string) error {
				if slices.Contains(strings.Fields(points), point) && (!failed.Swap(true) || kind == full) {
					return holt.Errorf(holt.OutOfSpace, "no room for %s", point)
				}
				return nil
			}
		}
	}
	step, number, _ := strings.Cut(kill, " ")
	any := strings.HasPrefix(kill, killArchive)
	left, err := strconv.Atoi(cmp.Or(number, "1"))
	if err != nil {
		panic(kill)
	}
	var mu sync.Mutex
	return func(point string) error {
		mu.Lock()
		defer mu.Unlock()
		if point == step || any && !strings.HasPrefix(point, "flush.") && !strings.HasPrefix(point, "journal.") {
			if left--; left == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		return nil
	}
}

// serveMain is that process: a daemon behind its unix socket.
func serveMain(dir string) int {
	log := servertest.Log(os.Stderr)
	tellFigures(dir)
	guest, err := os.ReadFile(os.Getenv(envGuest))
	if err != nil {
		log.Error("read guest", "err", err)
		return 1
	}
	cfg := daemon.Config{DataDir: dir, Engine: cmp.Or(os.Getenv(holt.EnvEngine), daemon.EngineLocal), Sandbox: os.Getenv(envSandbox), ImageDir: os.Getenv(holt.EnvImageDir), GuestBinary: guest, Log: log, Fail: killAt(os.Getenv(envKill)), Network: []string{"/proc/self/exe", asNetwork}, Keeper: []string{"/proc/self/exe", asKeeper}}
	if strings.HasPrefix(os.Getenv(envKill), killArchive) {
		cfg.Workspace = small
		cfg.Workspace.Fail = cfg.Fail
	}
	if cache := os.Getenv(envSnapshots); cache != "" {
		if cfg.SnapshotCache, err = strconv.ParseInt(cache, 10, 64); err != nil {
			log.Error("read "+envSnapshots, "err", err)
			return 1
		}
	}
	if after := os.Getenv(envRenew); after != "" {
		if cfg.Renew, err = time.ParseDuration(after); err != nil {
			log.Error("read "+envRenew, "err", err)
			return 1
		}
	}
	d, err := daemon.Open(context.Background(), cfg)
	if err != nil {
		log.Error("open daemon", "err", err)
		return 1
	}
	l, err := httpapi.ListenLocal(filepath.Join(dir, "holt.sock"))
	if err != nil {
		log.Error("listen", "err", err)
		return 1
	}
	s := httpapi.New(httpapi.Options{Nouns: d.Nouns(), Authorize: d.Authorizer(), Log: log})
	d.Own(s.Own)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		<-d.Done()
		late, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		s.Shutdown(late)
	}()
	fmt.Println("up")
	if err := s.ServeLocal(l); err != nil {
		log.Error("serve", "err", err)
		return 1
	}
	<-answered // who asked for the end hears of it
	if err := d.Close(); err != nil {
		log.Error("close", "err", err)
		return 1
	}
	return 0
}

// process is a daemon in a process of its own.
type process struct {
	*client.Client
	cmd  *exec.Cmd
	done chan error
}

// spawn starts a daemon process, which kills itself at a step if kill names one,
// and returns when it answers or has ended.
func spawn(t *testing.T, dir, kill string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = slices.Concat(os.Environ(), []string{envDaemon + "=" + dir, envGuest + "=" + machinetest.Agent(t), envKill + "=" + kill})
	if own, ok := environments.Load(t.Name()); ok {
		for name, value := range own.(map[string]string) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = servertest.LogTo{T: t}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, done: make(chan error, 1)}
	line, _ := bufio.NewReader(out).ReadString('\n')
	go func() { p.done <- cmd.Wait() }()
	t.Cleanup(func() { p.kill() })
	if strings.TrimSpace(line) != "up" && kill == "" {
		t.Fatal("the daemon did not come up")
	}
	p.Client = connect(t, dir)
	return p
}

// connect returns a client that has no connection yet.
func connect(t *testing.T, dir string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: filepath.Join(dir, "holt.sock"), Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// kill ends the daemon as a power cut would, and waits.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.wait()
}

func (p *process) wait() error {
	err := <-p.done
	p.done <- err
	return err
}
