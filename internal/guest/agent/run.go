package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	// exitGrace is how long output is still read after a run's process has ended,
	// if another process holds its streams.
	exitGrace = 150 * time.Millisecond
	// killGrace is the time between SIGTERM and SIGKILL at a timeout.
	killGrace = 5 * time.Second
	pipeSize  = 256 << 10
	maxSpec   = 640 << 10 // bytes of arguments and environment, including those added by the guest
	guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// run is a command, running or ended.
type run struct {
	group  group
	output *output
	end    <-chan unix.WaitStatus
	ended  chan struct{} // closed when the run has ended and its output is complete
	streams
	input   input
	secrets []string // masked in the output, longest first

	mu     sync.Mutex
	info   holt.Run
	killed bool // all its processes were killed
	asked  bool // asked to end, by a signal or its timeout
	over   bool // its process has ended; its output may still wait for a follower
}

// streams are the agent's ends of a run's standard streams.
type streams struct {
	stdin          *os.File // nil: /dev/null
	stdout, stderr *os.File
}

func (r *run) snapshot() holt.Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// now is snapshot with the current number of remaining processes of an ended run.
func (r *run) now() holt.Run {
	info := r.snapshot()
	if info.State == holt.RunExited && info.Background > 0 {
		info.Background = r.left()
	}
	return info
}

// left returns the number of the run's processes. Killed ones do not count,
// though they may take a moment to end.
func (r *run) left() int {
	n := len(r.group.pids())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed {
		return 0
	}
	return n
}

// signal sends a signal to all processes of the run and returns their number.
func (r *run) signal(sig unix.Signal) int {
	switch sig {
	case unix.SIGKILL:
		r.mu.Lock()
		r.killed = true
		r.mu.Unlock()
		fallthrough
	case unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP:
		r.note(true, false)
	}
	return r.group.signal(sig)
}

// note records that the run was asked to end, or that its process has ended. If
// both hold, its output does not wait long for a follower that does not read.
func (r *run) note(asked, over bool) {
	r.mu.Lock()
	r.asked, r.over = r.asked || asked, r.over || over
	hurry := r.asked && r.over
	r.mu.Unlock()
	if hurry {
		r.output.hurry()
	}
}

// command is a prepared spec.
type command struct {
	path string
	argv []string
	attr syscall.ProcAttr

	startup string // content of startupFile, which its shell reads first
}

// prepare finds the program, user and directory of a spec. id is the id of the run or terminal.
func prepare(id string, spec holt.RunSpec, workspace string) (command, error) {
	var c command
	if err := checkSpec(spec); err != nil {
		return c, err
	}
	user, err := findAccount(spec.User)
	if err != nil {
		return c, err
	}
	c.attr.Dir = string(spec.Cwd)
	if c.attr.Dir == "" {
		c.attr.Dir = workspace
	}
	if st, err := os.Stat(c.attr.Dir); errors.Is(err, os.ErrNotExist) {
		return c, holt.Errorf(holt.NotFound, "working directory %s does not exist", c.attr.Dir).
			WithHint("create it first with mkdir -p in the computer, or omit it to use the workspace")
	} else if err != nil {
		return c, holt.Errorf(holt.Unavailable, "working directory %s: %w", c.attr.Dir, err).
			WithHint("check the computer's log for errors of that file system")
	} else if !st.IsDir() {
		return c, holt.Errorf(holt.InvalidArgument, "working directory %s is not a directory", c.attr.Dir).
			WithHint("use the directory that contains it")
	}
	c.attr.Env = environment(id, spec, user)
	c.argv = spec.Argv
	if spec.Command != "" {
		c.runLine(spec)
	}
	if c.path, err = findProgram(c.argv[0], c.attr.Dir, c.attr.Env); err != nil {
		return c, err
	}
	warm(c.path)
	c.attr.Sys = &syscall.SysProcAttr{
		Setsid:     true, // a session and process group of its own, without a terminal
		Credential: &syscall.Credential{Uid: user.UID, Gid: user.GID, Groups: user.Groups},
	}
	return c, nil
}

func checkSpec(spec holt.RunSpec) error {
	if (spec.Command == "") == (len(spec.Argv) == 0) {
		return holt.Errorf(holt.InvalidArgument, "a run needs either a command or an argv").
			WithHint("a command is given to the shell, an argv is run as it is")
	}
	if spec.Cwd != "" && !filepath.IsAbs(string(spec.Cwd)) {
		return holt.Errorf(holt.InvalidArgument, "working directory %q is not absolute", clip(string(spec.Cwd))).
			WithHint("begin it with /, such as /home/agent/src")
	}
	if spec.TimeoutMS < 0 {
		return holt.Errorf(holt.InvalidArgument, "timeout of %d ms is negative", spec.TimeoutMS).
			WithHint("omit it, or use 0, for no timeout")
	}
	words := append([]string{string(spec.Command), string(spec.Cwd)}, spec.Argv...)
	for _, vars := range []map[holt.OSString]holt.OSString{spec.Env, spec.Secrets} {
		for k, v := range vars {
			if k == "" || strings.Contains(string(k), "=") {
				return holt.Errorf(holt.InvalidArgument, "invalid name of an environment variable: %q", clip(string(k)))
			}
			words = append(words, string(k), string(v))
		}
	}
	total := 0
	for _, w := range words {
		total += len(w) + 1
		if strings.Contains(w, "\x00") {
			return holt.Errorf(holt.InvalidArgument, "a command, argument or environment variable contains a zero byte")
		}
	}
	if total > maxSpec {
		return holt.Errorf(holt.InvalidArgument, "arguments and environment are too long: %d bytes, the maximum is %d", total, maxSpec)
	}
	return checkWords(spec)
}

// environment returns the variables of the user, /etc/environment, the proxy
// settings and the spec; later ones override earlier ones.
func environment(id string, spec holt.RunSpec, user account) []string {
	vars := map[string]string{
		"PATH": guestPath, "LANG": defaultLocale,
		"HOME": user.Home, "USER": user.Name, "LOGNAME": user.Name, "SHELL": user.Shell,
	}
	_ = bundle("/", false) // on failure the previous bundle stays
	for _, file := range []string{"/etc/environment", "/" + proxyEnvironment} {
		readVariables(vars, file)
	}
	sessionVariables(vars, "", user)
	for k, v := range spec.Env {
		vars[string(k)] = string(v)
	}
	for k, v := range spec.Secrets {
		vars[string(k)] = string(v)
	}
	dropLocales(vars, "")
	setTERM(vars, "", user)
	vars[envOf(id)] = id
	env := make([]string, 0, len(vars))
	for k, v := range vars {
		env = append(env, k+"="+v)
	}
	return env
}

// readVariables reads a file in the format of /etc/environment into vars.
func readVariables(vars map[string]string, file string) {
	b, err := os.ReadFile(file)
	if err != nil || len(b) > maxSpec {
		return
	}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if k = strings.TrimPrefix(k, "export "); ok && k != "" && !strings.HasPrefix(k, "#") {
			vars[k] = strings.Trim(v, `"'`)
		}
	}
}

// findProgram finds a program in PATH as a shell does.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil
	}
	for _, kv := range env {
		path, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(path) {
			p := filepath.Join(d, name)
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return p, nil
			}
		}
	}
	return "", holt.Errorf(holt.NotFound, "program %q is not in the PATH", clip(name)).
		WithHint("install it in the computer, or give its full path; to run a shell command line, pass it as one argument without --")
}

// warm reads a program's first page. While the kernel starts a program this
// whole process may be blocked (Go shares its memory with the child until
// then), so a file of the workspace should be cached before.
func warm(path string) {
	if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
		f.Read(make([]byte, 4<<10))
		f.Close()
	}
}

// launch starts a prepared command as a run.
func launch(r *reaper, g group, c command, spec holt.RunSpec, limit int) (*run, error) {
	s, files, err := openStreams(spec.Stdin)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, f := range files {
		c.attr.Files = append(c.attr.Files, f.Fd())
	}
	pid, end, err := startIn(r, g, &c)
	if err != nil {
		s.close()
		g.remove()
		return nil, launchError(c, err)
	}
	unprotect(g, pid)
	now := time.Now()
	return &run{
		group: g, output: newOutput(limit, spec.Detached, now), end: end, ended: make(chan struct{}), streams: s,
		secrets: spec.Secrets.Values(),
		info:    holt.Run{ID: holt.RunID(g.id), Spec: spec.OnRecord(), State: holt.RunRunning, StartedAt: now.UTC()},
	}, nil
}

// startIn starts a process in a group. It retries if another agent of this host
// has swept the group.
func startIn(r *reaper, g group, c *command) (pid int, end <-chan unix.WaitStatus, err error) {
	drop, err := c.giveStartup()
	if err != nil {
		return 0, nil, err
	}
	defer drop()
	for range 20 {
		var done func()
		if done, err = g.join(c.attr.Sys); err == nil {
			pid, end, err = r.start(c.path, c.argv, &c.attr)
			done()
		}
		if err == nil || !g.swept() {
			break
		}
	}
	return pid, end, err
}

func launchError(c command, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return holt.Errorf(holt.NotFound, "program %s does not exist, or its interpreter does not", c.path).
			WithHint("check the interpreter in a script's first line, or the loader that ldd shows for a program; to run a shell command line, pass it without --")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return holt.Errorf(holt.Forbidden, "cannot run %s in %s: %w", c.path, c.attr.Dir, err).
			WithHint("check that the user may execute the program and enter the directory")
	case errors.Is(err, unix.ENOEXEC):
		return holt.Errorf(holt.InvalidArgument, "%s is not a program", c.path).
			WithHint("a script needs a first line such as #!/bin/sh; a binary must match the computer's architecture")
	case errors.Is(err, unix.E2BIG):
		return holt.Errorf(holt.InvalidArgument, "cannot run %s: %w: its arguments and environment", c.path, err).
			WithHint("the kernel limits arguments, variables and /etc/environment together to a quarter of the stack limit (ulimit -s); write large data to a file")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return holt.Errorf(holt.TooMany, "cannot run %s: %w", c.path, err).
			WithHint("the computer is out of processes or memory: end some of its runs")
	}
	return fmt.Errorf("start %s: %w", c.path, err)
}

// unprotect reverts [protect] for a new run, which inherits it. The program may
// have forked in between.
func unprotect(g group, pid int) {
	if b, err := os.ReadFile("/proc/self/oom_score_adj"); err != nil || strings.TrimSpace(string(b)) == "0" {
		return
	}
	os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0)
	if g.dir == "" {
		return
	}
	if pids := g.pids(); len(pids) > 1 {
		for _, pid := range pids {
			os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte("0"), 0)
		}
	}
}

// openStreams opens a run's pipes: s are the agent's ends, files the child's, in order.
func openStreams(stdin bool) (s streams, files []*os.File, err error) {
	defer func() {
		if err != nil {
			s.close()
			for _, f := range files {
				f.Close()
			}
			files = nil
			err = holt.Errorf(holt.TooMany, "open the run's streams: %w", err)
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return s, files, err
	}
	files = append(files, null)
	if stdin {
		null.Close()
		if files[0], s.stdin, err = pipe(1); err != nil {
			return s, files[:0], err
		}
	}
	for _, end := range []**os.File{&s.stdout, &s.stderr} {
		var child *os.File
		if *end, child, err = pipe(0); err != nil {
			return s, files, err
		}
		files = append(files, child)
	}
	return s, files, nil
}

// pipe opens a pipe. The end with index ours does not block threads of this
// process; the other end is in blocking mode.
func pipe(ours int) (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize) // for fewer context switches; optional
	unix.SetNonblock(fds[ours], true)
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}

func (s *streams) close() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// supervise reads the run's output, enforces its timeout and ends it.
func (r *run) supervise(log *slog.Logger) {
	var readers sync.WaitGroup
	readers.Go(func() { r.collect(eventStdout, r.stdout) })
	readers.Go(func() { r.collect(eventStderr, r.stderr) })
	var timer *time.Timer
	if ms := r.info.Spec.TimeoutMS; ms > 0 {
		timer = time.AfterFunc(time.Duration(ms)*time.Millisecond, r.expire)
	}
	status := <-r.end
	r.note(false, true)
	grace := time.Now().Add(exitGrace)
	r.stdout.SetReadDeadline(grace)
	r.stderr.SetReadDeadline(grace)
	if r.stdin != nil {
		r.stdin.Close()
	}
	readers.Wait()
	if timer != nil {
		timer.Stop()
	}
	r.finish(status)
	log.Debug("run ended", "run", r.group.id)
}

// finish records the end.
func (r *run) finish(status unix.WaitStatus) {
	memory := r.group.outOfMemory()
	left := r.left()
	if left == 0 {
		r.group.remove()
	}
	reason := holt.RunReason("")
	if r.group.share != nil { // in a machine of its own
		reason = leaving(r.info.Spec)
	}
	now := time.Now().UTC()
	r.mu.Lock()
	r.info.Reason, r.info.OutOfMemory = reason, memory
	r.info.State, r.info.EndedAt, r.info.Background = holt.RunExited, &now, left
	r.info.ExitCode, r.info.Signal = ending(status)
	r.mu.Unlock()
	r.output.close()
	close(r.ended)
}

// expire kills the run at its timeout. A run whose process has ended stops
// waiting for its followers.
func (r *run) expire() {
	r.note(true, false)
	r.mu.Lock()
	over := r.over
	r.info.TimedOut = !over
	r.mu.Unlock()
	if over {
		return
	}
	r.signal(unix.SIGTERM)
	time.AfterFunc(killGrace, func() { r.signal(unix.SIGKILL) })
}

// collect copies one stream into the ring until its end, or until exitGrace
// after the process's exit. It then reads and discards further output, because
// processes that hold the other end must neither block nor get SIGPIPE.
func (r *run) collect(kind byte, f *os.File) {
	buf := make([]byte, 64<<10)
	m := newMask(r.secrets)
	defer func() { r.output.write(kind, m.flush()) }()
	for {
		n, err := f.Read(buf)
		if n > 0 {
			r.output.write(kind, m.hide(buf[:n]))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.drain(kind, f, buf, m)
			go func() {
				defer f.Close()
				f.SetReadDeadline(time.Time{})
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf)
			}()
			return
		}
		if err != nil {
			f.Close()
			return
		}
	}
}

// drain reads what a pipe holds now: output written before the exit, even if
// the ring was full until now.
func (r *run) drain(kind byte, f *os.File, buf []byte, m *mask) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	f.SetReadDeadline(time.Time{})
	for left := pipeSize; left > 0; {
		n := 0
		raw.Read(func(fd uintptr) bool {
			n, _ = unix.Read(int(fd), buf[:min(len(buf), left)])
			return true
		})
		if n <= 0 {
			return
		}
		r.output.write(kind, m.hide(buf[:n]))
		left -= n
	}
}
