package agent

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	tagFor  = 250 * time.Millisecond // cache time; pids are not reused that soon
	maxTags = 1024
)

// tagger finds the owner of a pid as a request's tag: "run/<id>",
// "terminal/<id>", "for/<mark>", "container/<id>", "unit/<service>" or "". It
// must be called while the process waits for its request: later the pid may be
// reused.
type tagger struct {
	prefix string // of cgroups of runs and terminals in /proc
	now    func() time.Time
	read   func(pid uint32, file string) ([]byte, error)

	mu    sync.Mutex
	cache map[uint32]cachedTag
}

type cachedTag struct {
	tag   string
	until time.Time
}

func newTagger(cgroup string) *tagger {
	return &tagger{
		prefix: "/" + cgroup + "/", now: time.Now, cache: map[uint32]cachedTag{},
		read: readProc,
	}
}

// readProc reads a file of a process. For cgroup it uses three raw system
// calls, since a program's first change of a file waits for it: os.ReadFile
// makes twelve, each of which may move the goroutine to another thread and
// back.
func readProc(pid uint32, file string) ([]byte, error) {
	if file != "cgroup" {
		return os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)) // may be long, and may block
	}
	path := fmt.Appendf(nil, "/proc/%d/%s\x00", pid, file)
	cwd := unix.AT_FDCWD
	fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(cwd), uintptr(unsafe.Pointer(&path[0])), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	b := make([]byte, 4<<10)
	n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	return b[:n], nil
}

// Of returns the tag of a process; 0 is the kernel.
func (t *tagger) Of(pid uint32) string {
	if pid == 0 {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if c, ok := t.cache[pid]; ok && now.Before(c.until) {
		return c.tag
	}
	if len(t.cache) >= maxTags {
		clear(t.cache)
	}
	tag := marked(t.byGroup(pid), func() string {
		b, _ := t.read(pid, "comm")
		return string(b)
	})
	// The agent's own threads change their name with each operation.
	if tag != "" && !strings.HasPrefix(tag, "for/") {
		t.cache[pid] = cachedTag{tag, now.Add(tagFor)}
	}
	return tag
}

// TagOf returns the tag of a thread with this name, in this cgroup of version 2,
// of an agent whose cgroup has the usual name. It is for a [Tagger] that learns
// both in another way than from /proc.
func TagOf(comm, cgroup string) string {
	return marked(byCgroup("/"+defaultCgroup+"/", cgroup), func() string { return comm })
}

// marked returns the tag of a thread that has this tag by its cgroup: the mark
// in its name, if it works for an operation of the host.
func marked(tag string, comm func() string) string {
	if strings.HasPrefix(tag, "run/") || strings.HasPrefix(tag, "terminal/") {
		return tag
	}
	if mark, ok := strings.CutPrefix(strings.TrimSpace(comm()), ThreadPrefix); ok && markRE.MatchString(mark) {
		return "for/" + mark
	}
	return tag
}

func (t *tagger) byGroup(pid uint32) string {
	b, _ := t.read(pid, "cgroup")
	for line := range bytes.Lines(b) {
		// 0::/holt/run_abc is cgroup2's line; the others are v1's.
		if where, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return byCgroup(t.prefix, strings.TrimSpace(string(where)))
		}
	}
	// Without cgroup2, runs are identified by their environment. (Only then: it is
	// read from the process's memory, whose lock may be held by a process that
	// waits for this request.)
	env, _ := t.read(pid, "environ")
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if name, id, _ := bytes.Cut(kv, []byte("=")); string(name) == runEnv || string(name) == terminalEnv {
			if tag := tagOf(string(id)); tag != "" {
				return tag
			}
		}
	}
	return ""
}

// tagOf returns the tag for the id of a run or terminal, "" for other text.
func tagOf(id string) string {
	if id, err := holt.ParseRunID(id); err == nil {
		return "run/" + string(id)
	}
	if id, err := holt.ParseTerminalID(id); err == nil {
		return "terminal/" + string(id)
	}
	return ""
}

// byCgroup returns the tag of a cgroup. prefix is the path of the agent's cgroup, with a slash at both ends.
func byCgroup(prefix, where string) string {
	// A cgroup namespace, or the host's tree above ours, may come before the prefix.
	for _, kind := range []string{runPrefix, terminalPrefix} {
		if _, rest, ok := strings.Cut(where, prefix+kind); ok {
			id, _, _ := strings.Cut(kind+rest, "/")
			if tag := tagOf(id); tag != "" {
				return tag
			}
		}
	}
	if m := containerRE.FindStringSubmatch(where); m != nil {
		return "container/" + m[1]
	}
	for dir := where; len(dir) > 1; dir = path.Dir(dir) {
		name := path.Base(dir)
		if strings.HasSuffix(name, ".service") && !strings.HasPrefix(name, "user@") && len(name) < 100 {
			return "unit/" + name
		}
	}
	return ""
}

// containerRE matches the short id of a Docker container in its cgroup, for both cgroup drivers.
var containerRE = regexp.MustCompile(`/(?:docker-)?([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)`)

const agentName = "holt-guest"

// ThreadPrefix begins the name of a thread that works for an operation of the
// host; the rest is the operation's mark. The pump, another process, reads it
// there. A name has at most 15 bytes, see prctl(2).
const ThreadPrefix = "holt:"

var markRE = regexp.MustCompile(`^[0-9a-f]{1,8}$`)

// nameThread marks the file requests of the calling goroutine until done is called.
func nameThread(mark string) (done func(), err error) {
	if !markRE.MatchString(mark) {
		return nil, holt.Errorf(holt.InvalidArgument, "invalid mark of an operation: %q", clip(mark))
	}
	runtime.LockOSThread()
	if err := setThreadName(ThreadPrefix + mark); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		if setThreadName(agentName) == nil { // otherwise the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}, nil
}

func setThreadName(name string) error {
	b, err := unix.BytePtrFromString(name)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
	return err
}
