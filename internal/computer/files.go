package computer

import (
	"context"
	"io"
	"path"
	"time"

	"holt"
	"holt/internal/guest/agent"
	"holt/internal/idempotency"
	"holt/internal/workspace"
)

// defaultUser runs what names no user.
const defaultUser = "agent"

// Files is the files of computers through their guest agents, as root sees them. Paths are absolute
// and are cleaned before use. A stopped computer is started first, except to read its workspace.
type Files struct {
	*registry
	waker *waker
}

// Stat describes a file; it does not follow a symlink at the end of path.
func (f *Files) Stat(ctx context.Context, computer, path string) (holt.FileInfo, error) {
	p, err := cleanPath(path)
	if err != nil {
		return holt.FileInfo{}, err
	}
	var info holt.FileInfo
	off, err := f.offline(ctx, computer, p, func(w workspace.Files) (err error) {
		info, err = w.Stat(p)
		return err
	})
	if off || err != nil {
		return info, err
	}
	err = f.ask(ctx, computer, "look at "+p, true, func(ctx context.Context, c *agent.Client) (err error) {
		info, err = c.Stat(ctx, p)
		return err
	})
	return info, err
}

// Read writes n bytes of a file from offset off to w; n < 0: up to its end.
func (f *Files) Read(ctx context.Context, computer, path string, off, n int64, w io.Writer) error {
	p, err := cleanPath(path)
	if err != nil {
		return err
	}
	if off < 0 {
		return holt.Errorf(holt.InvalidArgument, "invalid offset %d: the minimum is 0", off)
	}
	stopped, err := f.offline(ctx, computer, p, func(files workspace.Files) error { return files.Read(ctx, p, off, n, w) })
	if stopped || err != nil {
		return err
	}
	return f.stream(ctx, computer, "read "+p, func(ctx context.Context, c *agent.Client, dog *watchdog) error {
		_, err := c.ReadFile(ctx, p, off, n, &fedWriter{w, dog})
		return err
	})
}

// Write replaces the content of a file once all of r has arrived; an error of r leaves the old
// content. An existing file keeps its inode, owner, mode and attributes, except for those that spec
// names.
func (f *Files) Write(ctx context.Context, computer, name string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	p, err := cleanPath(name)
	if err != nil {
		return holt.FileInfo{}, err
	}
	if p == "/" {
		return holt.FileInfo{}, holt.Errorf(holt.InvalidArgument, "/ is a directory, not a file").WithHint("name a file, for example /home/agent/notes.md")
	}
	if mode := max(spec.Mode, spec.NewMode); mode > 0o7777 {
		return holt.FileInfo{}, badMode(mode)
	}
	if spec.Parents {
		if err := f.mkdir(ctx, computer, holt.MkdirSpec{Path: holt.OSString(path.Dir(p)), User: spec.User, Parents: true}); err != nil {
			return holt.FileInfo{}, err
		}
	}
	err = f.streamChange(ctx, computer, "write "+p, func(ctx context.Context, c *agent.Client, dog *watchdog) error {
		return c.WriteFile(ctx, p, spec, &fedReader{r: r, dog: dog})
	})
	if err != nil {
		return holt.FileInfo{}, err
	}
	return f.Stat(ctx, computer, p)
}

// Mkdir makes a directory.
func (f *Files) Mkdir(ctx context.Context, computer string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	p, err := cleanPath(string(spec.Path))
	if err != nil {
		return holt.FileInfo{}, err
	}
	return idempotency.Once(ctx, f.cfg.Keys, idempotency.Call[holt.FileInfo]{
		Key: key, Method: "file.mkdir", Request: []any{computer, spec},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.FileInfo, error) {
			if err := f.mkdir(ctx, computer, spec); err != nil {
				return holt.FileInfo{}, err
			}
			return f.Stat(ctx, computer, p)
		},
	})
}

func (f *Files) mkdir(ctx context.Context, computer string, spec holt.MkdirSpec) error {
	if spec.Mode > 0o7777 {
		return badMode(spec.Mode)
	}
	if spec.Mode == 0 {
		spec.Mode = 0o755
	}
	return f.change(ctx, computer, "make "+string(spec.Path), spec.Parents, func(ctx context.Context, c *agent.Client) error {
		return c.Mkdir(ctx, path.Clean(string(spec.Path)), spec.Mode, spec.User, spec.Parents)
	})
}

// Symlink makes a symbolic link; a file or link at its path is replaced as one step.
func (f *Files) Symlink(ctx context.Context, computer string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	p, err := cleanPath(string(spec.Path))
	if err != nil {
		return holt.FileInfo{}, err
	}
	return idempotency.Once(ctx, f.cfg.Keys, idempotency.Call[holt.FileInfo]{
		Key: key, Method: "file.symlink", Request: []any{computer, spec},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.FileInfo, error) {
			err := f.change(ctx, computer, "link "+p, true, func(ctx context.Context, c *agent.Client) error {
				return c.Symlink(ctx, p, string(spec.Target), spec.User)
			})
			if err != nil {
				return holt.FileInfo{}, err
			}
			return f.Stat(ctx, computer, p)
		},
	})
}

func badMode(mode uint32) error {
	return holt.Errorf(holt.InvalidArgument, "%#o is not a file mode", mode).WithHint("give octal permission bits, at most 07777")
}

// Remove removes a file or an empty directory; recursive: a whole tree.
func (f *Files) Remove(ctx context.Context, computer, name string, recursive bool, key string) error {
	p, err := cleanPath(name)
	if err != nil {
		return err
	}
	if p == "/" || p == workspace.Home {
		return holt.Errorf(holt.InvalidArgument, "%s cannot be removed", p).
			WithHint("remove the files in it, or delete the computer")
	}
	_, err = idempotency.Once(ctx, f.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "file.remove", Request: []any{computer, p, recursive}, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			return struct{}{}, f.streamChange(ctx, computer, "remove "+p, func(ctx context.Context, c *agent.Client, dog *watchdog) error {
				if recursive { // the agent calls it done when nothing is there
					if _, err := c.Stat(ctx, p); err != nil {
						return err
					}
				}
				dog.hold() // a big tree takes its time and says nothing meanwhile
				return c.Remove(ctx, p, recursive)
			})
		},
	})
	return err
}

// Rename moves a file within the computer, replacing what is there.
func (f *Files) Rename(ctx context.Context, computer string, spec holt.RenameSpec, key string) error {
	from, err := cleanPath(string(spec.From))
	if err != nil {
		return err
	}
	to, err := cleanPath(string(spec.To))
	if err != nil {
		return err
	}
	_, err = idempotency.Once(ctx, f.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "file.rename", Request: []any{computer, spec},
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			return struct{}{}, f.change(ctx, computer, "rename "+from, false, func(ctx context.Context, c *agent.Client) error {
				return c.Rename(ctx, from, to)
			})
		},
	})
	return err
}

// use returns the machine of a computer, woken if necessary and in use until done is called.
func (f *Files) use(ctx context.Context, computer, what string) (l *live, done func(), err error) {
	_, l, done, err = f.waker.use(ctx, computer, holt.Use{Kind: holt.UseFiles, Detail: what})
	return l, done, err
}

// ask calls act with the guest agent of a computer. what describes the use; repeat allows a second
// attempt.
func (f *Files) ask(ctx context.Context, computer, what string, repeat bool, act func(context.Context, *agent.Client) error) error {
	l, used, err := f.use(ctx, computer, what)
	if err != nil {
		return err
	}
	defer used()
	return l.do(ctx, l.limits.Answer, repeat, act)
}

// change is ask for a change of files, which is attributed to the caller.
func (f *Files) change(ctx context.Context, computer, what string, repeat bool, act func(context.Context, *agent.Client) error) error {
	l, used, err := f.use(ctx, computer, what)
	if err != nil {
		return err
	}
	defer used()
	mark, done := f.mark(ctx, l)
	defer done()
	err = l.do(ctx, l.limits.Answer, repeat, func(ctx context.Context, c *agent.Client) error { return act(ctx, c.For(mark)) })
	return f.noSpace(ctx, computer, err)
}

// mark returns the mark that attributes changes of the guest's files to the caller until done is
// called; "": none.
func (f *Files) mark(ctx context.Context, l *live) (mark string, done func()) {
	if f.cfg.Writer == nil {
		return "", func() {}
	}
	return l.marks.begin(f.cfg.Writer(ctx))
}

// stream is ask for a transfer: it ends when the guest stalls, not after a fixed time.
func (f *Files) stream(ctx context.Context, computer, what string, act func(context.Context, *agent.Client, *watchdog) error) error {
	l, used, err := f.use(ctx, computer, what)
	if err != nil {
		return err
	}
	defer used()
	return l.stream(ctx, act)
}

// streamChange is stream for a change of files, which is attributed to the caller.
func (f *Files) streamChange(ctx context.Context, computer, what string, act func(context.Context, *agent.Client, *watchdog) error) error {
	l, used, err := f.use(ctx, computer, what)
	if err != nil {
		return err
	}
	defer used()
	mark, done := f.mark(ctx, l)
	defer done()
	err = l.stream(ctx, func(ctx context.Context, c *agent.Client, dog *watchdog) error { return act(ctx, c.For(mark), dog) })
	return f.noSpace(ctx, computer, err)
}

func (l *live) stream(ctx context.Context, act func(context.Context, *agent.Client, *watchdog) error) error {
	c, err := l.agent(ctx, l.limits.Reconnect)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	dog := newWatchdog(l.limits.Stall, cancel)
	defer dog.hold()
	err = act(bounded, c, dog)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return gone(ctx)
	case bounded.Err() != nil || cut(c, err) && holt.CodeOf(err) == holt.Unavailable:
		return notAnswering(err)
	default:
		return err
	}
}

// watchdog ends a transfer in which the guest makes no progress. The caller's own time does not
// count.
type watchdog struct {
	limit time.Duration
	timer *time.Timer
}

func newWatchdog(limit time.Duration, bark func()) *watchdog {
	return &watchdog{limit, time.AfterFunc(limit, bark)}
}

func (w *watchdog) feed() { w.timer.Reset(w.limit) }
func (w *watchdog) hold() { w.timer.Stop() }

// fedWriter writes data from the guest.
type fedWriter struct {
	w   io.Writer
	dog *watchdog
}

func (f *fedWriter) Write(p []byte) (int, error) {
	f.dog.hold()
	defer f.dog.feed()
	return f.w.Write(p)
}

// fedReader reads data for the guest. At the end the guest syncs it without a sign of progress: it
// gets time in proportion to the size, up to longestEnd.
type fedReader struct {
	r    io.Reader
	dog  *watchdog
	sent int64
}

const (
	slowestDisk = 10 << 20  // how fast a guest must write to its disk, bytes a second
	longestEnd  = time.Hour // 300 GB at 100 MB/s: to copy them into a file that exists takes a usual disk as long
)

func (f *fedReader) Read(p []byte) (n int, err error) {
	f.dog.hold()
	defer func() {
		f.sent += int64(n)
		if err == io.EOF {
			f.dog.timer.Reset(f.dog.limit + min(time.Duration(f.sent/slowestDisk)*time.Second, longestEnd))
			return
		}
		f.dog.feed()
	}()
	return f.r.Read(p)
}
