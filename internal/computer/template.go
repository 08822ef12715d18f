package computer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/guest/agent"
	"holt/internal/hosterror"
	"holt/internal/image"
)

// template is an image and a shape. It is booted once, and a snapshot of the ready machine is kept,
// from which new computers are resumed.
//
// The snapshot belongs to the image store and is shared by daemons. While it is being made, its
// machine is in a directory of [Config].Templates, and ends with the call that makes it, or with
// the next Open.
type template struct {
	*Templates
	engine machine.Engine
	img    image.Image
	r      record // of the computer that wants it: its shape
	// background: no call waits for it, so its machine gets only spare resources.
	background bool
}

// templateFormat is part of the key of every snapshot. It is increased when what is done to a
// machine before its snapshot changes.
const templateFormat = 4

// key identifies what the snapshot depends on besides the image. The engine itself checks its
// hardware on a resume.
func (t template) key() string {
	b, err := json.Marshal([]any{
		templateFormat, t.engine.Name(), t.engine.Capabilities().Version, t.img.Digest, filepath.Base(t.img.Initrd), t.img.Args, t.img.Units, t.r.CPUs, t.r.MemoryMB,
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// snapshot returns the directory of the snapshot, and makes it if there is none, which takes as
// long as a boot. It returns "" if none can be made now: then the computer boots. The error is that
// ctx has ended.
func (t template) snapshot(ctx context.Context) (string, error) {
	if !keepsTemplates(t.engine) {
		return "", nil
	}
	key := t.key()
	if dir := t.cfg.Images.Snapshot(t.img.Digest, key); dir != "" || t.failedBoots.recently(key) {
		return dir, nil
	}
	dir, _, err := t.keep(ctx, false)
	if ctx.Err() != nil {
		return "", gone(ctx)
	}
	if cutOff(err) {
		return "", err
	}
	if err != nil {
		t.notKept(err)
		return "", nil
	}
	return dir, nil
}

func (t template) notKept(err error) {
	t.log.Warn("make template snapshot; its computers boot instead of resuming", "template", t.img.Template, "err", err)
}

// keep returns the directory of the snapshot; made reports that it made it. Without again it does
// not retry a recent failure. A cancelled boot (see [cutOff]) does not count as a failure.
func (t template) keep(ctx context.Context, again bool) (dir string, made bool, err error) {
	key := t.key()
	ctx, leave := t.shutdown.whileStarting(ctx)
	defer leave()
	if t.background {
		var done func()
		ctx, done = t.preempt.background(ctx, key)
		defer done()
	} else {
		defer t.preempt.want(key)()
	}
	if ctx.Err() != nil {
		return "", false, gone(ctx)
	}
	dir, err = t.cfg.Images.MakeSnapshot(ctx, t.img.Digest, key, func(ctx context.Context, dir string) error {
		if !again && t.failedBoots.recently(key) {
			return errFailedBoot
		}
		began := time.Now()
		err := t.make(ctx, dir, filepath.Join(t.cfg.Templates, key))
		made = err == nil
		t.log.InfoContext(ctx, "template booted", "template", t.img.Template, "cpus", t.r.CPUs, "memory_mb", t.r.MemoryMB, "ms", time.Since(began).Milliseconds(), "ready", err == nil)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return "", false, gone(ctx)
	}
	if err != nil && !errors.Is(err, errFailedBoot) && !cutOff(err) {
		t.failedBoots.note(key)
	}
	return dir, made, err
}

// cutOff reports whether a boot was cancelled by another boot of the template, or by the end of the
// daemon.
func cutOff(err error) bool { return errors.Is(err, errPreempted) || errors.Is(err, errDrained) }

var errFailedBoot = holt.Errorf(holt.Unavailable, "the last boot of the template failed")

// drop removes a snapshot that cannot be resumed. The next create makes another.
func (t template) drop(ctx context.Context, why error) {
	t.log.ErrorContext(ctx, "resume from template snapshot; removing it and booting instead", "template", t.img.Template, "err", why)
	if err := t.cfg.Images.DropSnapshot(ctx, t.img.Digest, t.key()); err != nil {
		t.log.ErrorContext(ctx, "remove snapshot of template", "template", t.img.Template, "err", err)
		t.failedBoots.note(t.key())
	}
}

// make boots a machine in home, waits until it is ready, and leaves its snapshot in dir. The
// machine has ended afterwards.
func (t template) make(ctx context.Context, dir, home string) (err error) {
	if err := t.cfg.removeMachine(ctx, home, t.engine); err != nil { // what a former try may have left
		return err
	}
	defer func() {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		err = errors.Join(err, t.cfg.removeMachine(late, home, t.engine))
	}()
	disk := filepath.Join(dir, image.SnapshotDisk)
	if err := t.engine.CreateDisk(ctx, disk, machine.Base{Path: t.img.Root}, t.img.RootMB); err != nil {
		return hosterror.Full(err)
	}
	if err := errors.Join(t.cfg.failpoint("template/start"), t.shutdown.mayStart()); err != nil {
		return err
	}
	vm, err := t.engine.Start(ctx, machine.Spec{
		ID: "template-" + t.img.Template, Dir: home, Kernel: t.img.Kernel, Initrd: t.img.Initrd, Args: t.img.Args,
		Disk: disk, CPUs: t.r.CPUs, MemoryMB: t.r.MemoryMB, MaxCPUs: maxCPUs(), MaxMemoryMB: hostMemoryMB(), Network: true, Background: t.background, Unserved: true,
	})
	if err != nil {
		return hosterror.Full(err)
	}
	defer func() {
		err = errors.Join(err, vm.Kill())
		vm.Release()
	}()
	if link, err := t.cfg.join(ctx, t.engine, home, openNetwork, false, func(context.Context) {}); err != nil {
		return err
	} else if link != nil {
		defer link.Release()
	}
	if err = t.cfg.failpoint("template/ready"); err == nil {
		err = t.awaitReady(ctx, vm)
	}
	var down unready
	if errors.As(err, &down) {
		return down.explain(t.img.Template)
	}
	if err != nil {
		tail, _ := tailOf(vm.Console(), 4<<10)
		e := holt.Errorf(holt.CodeOf(err), "boot template %s: %w; the end of its console: %s", t.img.Template, err, tail)
		if e.Code == holt.Timeout {
			e = e.WithHint("the host may be slow, overloaded or out of space; the image stays, and its computers boot instead of resuming")
		}
		return e
	}
	if err := t.cfg.failpoint("template/memory"); err != nil {
		return err
	}
	kept := filepath.Join(dir, "snapshot")
	_, err = vm.Snapshot(ctx, machine.SnapshotSpec{Dir: kept, Disk: filepath.Join(dir, "unused.qcow2"), End: true, Durable: true})
	if err != nil {
		return hosterror.Full(err)
	}
	if err := t.cfg.failpoint("template/keep"); err != nil {
		return err
	}
	return os.Rename(disk, filepath.Join(kept, image.SnapshotDisk))
}

// awaitReady waits until a template's machine is ready. Its workspace is not served: programs that
// access it wait until a computer is resumed.
func (t template) awaitReady(ctx context.Context, vm machine.Machine) error {
	bounded, cancel := context.WithTimeout(ctx, t.cfg.limits(t.engine).Boot)
	defer cancel()
	bounded, stop := context.WithCancelCause(bounded)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer stop(nil)
	watch.Go(func() {
		select {
		case <-vm.Done():
			stop(holt.Errorf(holt.Unavailable, "the machine has ended"))
		case <-bounded.Done():
		}
	})
	is, err := t.ready(bounded, vm)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return gone(bounded)
	}
	if err != nil {
		return err
	}
	if len(is.Unready) > 0 {
		return unready(is.Unready)
	}
	if is.State != "running" && is.State != "degraded" {
		return holt.Errorf(holt.Unavailable, "its init reports the state %q", is.State)
	}
	return nil
}

// unready are required units that did not start.
type unready []agent.Unit

func (u unready) Error() string {
	var b strings.Builder
	for i, one := range u {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s did not start: it is %s", one.Name, one.State)
		if one.Log != "" {
			fmt.Fprintf(&b, "; the end of its log:\n%s", one.Log)
		}
	}
	return b.String()
}

func (u unready) explain(template string) error {
	return holt.Errorf(holt.Unavailable, "boot template %s: %w", template, u).
		WithHint("fix the recipe and build it again; until then its computers boot instead of resuming")
}

func (t template) ready(ctx context.Context, vm machine.Machine) (is agent.Readiness, err error) {
	conn, err := dial(ctx, vm, machine.PortControl)
	if err != nil {
		return is, err
	}
	client, err := agent.NewClient(conn)
	if err != nil {
		conn.Close()
		return is, err
	}
	defer client.Close()
	entropy := make([]byte, 64)
	rand.Read(entropy) // never fails, see crypto/rand
	name := t.img.Template
	if _, err := client.Configure(ctx, agent.Identity{
		Hostname: name, Now: time.Now(), Entropy: entropy, Hosts: []agent.HostEntry{{Address: "127.0.1.1", Names: []string{name}}},
	}); err != nil {
		return is, err
	}
	limit := t.cfg.limits(t.engine).Boot
	if end, ok := ctx.Deadline(); ok {
		limit = time.Until(end) * 9 / 10 // the rest is for it to say what is not ready
	}
	return client.Ready(ctx, t.img.Units, limit)
}

// removeMachine ends the machine in a directory, which is one of these engines', and removes the
// directory.
func (c *Config) removeMachine(ctx context.Context, dir string, engines ...machine.Engine) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := c.killIn(ctx, dir, engines...); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove machine's directory: %w", err)
	}
	return nil
}

// tidyTemplates ends interrupted boots of templates.
func (c *Config) tidyTemplates(ctx context.Context) error {
	entries, err := os.ReadDir(c.Templates)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read directory of templates: %w", err)
	}
	for _, e := range entries {
		if err := c.removeMachine(ctx, filepath.Join(c.Templates, e.Name()), c.Engines.All()...); err != nil {
			c.Log.Error("end interrupted boot of template", "directory", e.Name(), "err", err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return hosterror.Full(os.MkdirAll(c.Templates, 0o700))
}

// failedBoots are the keys of snapshots that could not be made recently.
type failedBoots struct {
	mu    sync.Mutex
	since map[string]time.Time
}

// remakeAfter is when a failed boot is retried.
const remakeAfter = 10 * time.Minute

func (u *failedBoots) note(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.since == nil {
		u.since = map[string]time.Time{}
	}
	u.since[key] = time.Now()
}

func (u *failedBoots) recently(key string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.since[key]
	return ok && time.Since(at) < remakeAfter
}
