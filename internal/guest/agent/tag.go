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
	tagFor  = 250 * time.Millisecond // a pid is not reused that soon
	maxTags = 1024
)

// tagger says whose process a pid is, in the words of a request's tag:
// "run/<id>", "terminal/<id>", "for/<mark>", "container/<id>", "unit/<service>" or "". It must be asked while the
// process waits for its request: later the pid may be another's.
type tagger struct {
	prefix string // of the cgroups of runs and terminals, as /proc tells them
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

// readProc reads a file of a process. Its cgroup takes three raw system calls, since
// a program's first change of a file waits for it: os.ReadFile makes twelve, each
// of which may hand the goroutine to another thread and back.
func readProc(pid uint32, file string) ([]byte, error) {
	if file != "cgroup" {
		return os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)) // may be long, and may wait
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

// of returns the tag of a process; 0 is the kernel itself.
func (t *tagger) of(pid uint32) string {
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
	tag := t.byGroup(pid)
	if !strings.HasPrefix(tag, "run/") && !strings.HasPrefix(tag, "terminal/") {
		if mark := t.mark(pid); mark != "" {
			tag = mark
		}
	}
	// The agent's own threads have another name with each operation.
	if tag != "" && !strings.HasPrefix(tag, "for/") {
		t.cache[pid] = cachedTag{tag, now.Add(tagFor)}
	}
	return tag
}

// mark returns the tag of a thread that works for an operation of the host's.
func (t *tagger) mark(pid uint32) string {
	b, _ := t.read(pid, "comm")
	mark, ok := strings.CutPrefix(strings.TrimSpace(string(b)), threadPrefix)
	if !ok || !markRE.MatchString(mark) {
		return ""
	}
	return "for/" + mark
}

func (t *tagger) byGroup(pid uint32) string {
	b, _ := t.read(pid, "cgroup")
	for line := range bytes.Lines(b) {
		// 0::/holt/run_abc is cgroup2's line; the others are v1's.
		if where, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return t.byCgroup(strings.TrimSpace(string(where)))
		}
	}
	// No cgroup2, so runs are told by their environment. (Not otherwise: it
	// is read from the process's memory, whose lock may be held by one that
	// waits for us.)
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

// tagOf returns the tag for the id of a run or terminal, "" for any other text.
func tagOf(id string) string {
	if id, err := holt.ParseRunID(id); err == nil {
		return "run/" + string(id)
	}
	if id, err := holt.ParseTerminalID(id); err == nil {
		return "terminal/" + string(id)
	}
	return ""
}

func (t *tagger) byCgroup(where string) string {
	// A namespace of cgroups, or the host's own tree above ours, may stand
	// before the prefix.
	for _, prefix := range []string{runPrefix, terminalPrefix} {
		if _, rest, ok := strings.Cut(where, t.prefix+prefix); ok {
			id, _, _ := strings.Cut(prefix+rest, "/")
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

// containerRE finds the short id of one of Docker's containers, whichever of its cgroup drivers made
// the cgroup.
var containerRE = regexp.MustCompile(`/(?:docker-)?([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)`)

// A thread that works for one of the host's operations bears the operation's
// mark in its name (15 bytes at most, see prctl(2)), where the pump, which is
// another process, finds it.
const (
	agentName    = "holt-guest"
	threadPrefix = "holt:"
)

var markRE = regexp.MustCompile(`^[0-9a-f]{1,8}$`)

// nameThread lets the calling goroutine's file requests be told by a mark,
// until done is called.
func nameThread(mark string) (done func(), err error) {
	if !markRE.MatchString(mark) {
		return nil, holt.Errorf(holt.InvalidArgument, "%q is no mark of an operation", clip(mark))
	}
	runtime.LockOSThread()
	if err := setThreadName(threadPrefix + mark); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	return func() {
		if setThreadName(agentName) == nil { // else the thread ends with its goroutine
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
