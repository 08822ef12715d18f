package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/guest/mount"
	"holt/internal/workspace"
)

// Names of columns, beside that of the file system below everything.
const (
	bareColumn      = "bare"
	workspaceColumn = "workspace"
	rcloneColumn    = "rclone"
	s3fsColumn      = "s3fs"
)

// place is a directory in which file work is done.
type place struct {
	dir  string
	load string // the load generator
	// restart ends what serves the directory and starts it again, knowing
	// nothing. It is nil where nothing serves it or what does would lose it.
	restart func(context.Context) error
	flush   func() error // writes what is put off; may be nil
}

// loaded is what the load generator prints.
type loaded struct {
	Count   int64
	Bytes   int64
	Seconds float64
	Synced  float64
}

func (l loaded) perSecond() float64 { return float64(l.Count) / l.Seconds }
func (l loaded) megabytes() float64 { return float64(l.Bytes) / 1e6 / l.Seconds }
func (l loaded) synced() float64    { return float64(l.Bytes) / 1e6 / l.Synced }

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// run runs the load generator.
func (p *place) run(ctx context.Context, args ...string) (loaded, error) {
	out, err := command(ctx, p.load, args...)
	if err != nil {
		return loaded{}, err
	}
	return parseLoaded(out)
}

func parseLoaded(out []byte) (l loaded, err error) {
	if err = json.Unmarshal(out, &l); err == nil && l.Seconds <= 0 {
		err = errors.New("it took no time")
	}
	if err != nil {
		return l, fmt.Errorf("load printed %.100q: %w", out, err)
	}
	return l, nil
}

// remove removes a name below the place, whether it is there or not.
func (p *place) remove(ctx context.Context, name string) error {
	_, err := p.run(ctx, "remove", "-dir", p.path(name))
	return err
}

// forget has the kernel drop what it caches.
func forget(ctx context.Context, p *place) error {
	_, err := p.run(ctx, "drop")
	return err
}

// begin has all of the place forgotten, by whoever serves it too.
func begin(ctx context.Context, p *place) error {
	if p.restart != nil {
		if err := p.restart(ctx); err != nil {
			return err
		}
	}
	return forget(ctx, p)
}

// opener makes a kind of place below a directory.
type opener struct {
	name string
	open func(ctx context.Context, b *bench, below string, p *place) error
}

// openPlaces makes columns of file works below dir. A kind whose program is
// not installed is left out.
func openPlaces(ctx context.Context, b *bench, dir string, kinds ...opener) ([]column[*place], error) {
	var out []column[*place]
	for _, kind := range kinds {
		below := filepath.Join(dir, kind.name)
		p := &place{dir: filepath.Join(below, "dir"), load: b.load}
		if err := os.MkdirAll(p.dir, 0o755); err != nil {
			return nil, err
		}
		err := kind.open(ctx, b, below, p)
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", kind.name, err)
		}
		out = append(out, column[*place]{kind.name, p})
	}
	return out, nil
}

// openDirect is a plain directory.
func openDirect(context.Context, *bench, string, *place) error { return nil }

// openBare mounts the same server with nothing behind it.
func openBare(ctx context.Context, b *bench, _ string, p *place) error {
	m, err := mount.Bare(ctx, p.dir, b.log)
	if err == nil {
		b.own("the bare mount", m.Unmount)
	}
	return err
}

// openWorkspace mounts a new workspace as `holt workspace mount` does.
func openWorkspace(ctx context.Context, b *bench, below string, p *place) error {
	s := &served{data: filepath.Join(below, "data"), dir: p.dir, log: b.log}
	ws, err := workspace.Create(s.data, workspace.Options{Log: b.log})
	if err != nil {
		return err
	}
	s.ws = ws
	b.own("the workspace's mount", s.stop)
	p.flush = func() error { return s.ws.Flush() }
	p.restart = func(ctx context.Context) error {
		if err := s.stop(); err != nil {
			return err
		}
		if s.ws, err = workspace.Open(s.data, workspace.Options{Log: s.log}); err != nil {
			return err
		}
		return s.start(ctx)
	}
	return s.start(ctx)
}

// served is a workspace and its mount.
type served struct {
	data, dir string
	log       *slog.Logger
	ws        *workspace.Workspace
	m         *mount.HostMount
}

func (s *served) start(ctx context.Context) (err error) {
	s.m, err = mount.Host(ctx, s.ws, s.dir, mount.HostOptions{
		Writer: workspace.Writer{Kind: "person", Name: "bench"}, Log: s.log,
	})
	return err
}

func (s *served) stop() error {
	var errs []error
	if s.m != nil {
		errs = append(errs, s.m.Unmount())
		s.m = nil
	}
	if s.ws != nil {
		errs = append(errs, s.ws.Close())
		s.ws = nil
	}
	return errors.Join(errs...)
}

// openRclone mounts a local directory with rclone, which keeps names and
// attributes in memory and writes files to a cache of its own first.
func openRclone(ctx context.Context, b *bench, below string, p *place) error {
	path, err := exec.LookPath("rclone")
	if err != nil {
		return err
	}
	remote := filepath.Join(below, "remote")
	if err := os.MkdirAll(remote, 0o755); err != nil {
		return err
	}
	cmd := exec.Command(path, "mount", remote, p.dir, "--config", os.DevNull, "--cache-dir", filepath.Join(below, "cache"),
		"--vfs-cache-mode", "full", "--links", "--log-level", "ERROR")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.own("rclone", ending(cmd, p.dir))
	return awaitMount(ctx, p.dir)
}

// ending returns what ends a program that serves a mount: it does so by itself
// when the mount is gone.
func ending(cmd *exec.Cmd, dir string) func() error {
	return func() error {
		unix.Unmount(dir, unix.MNT_DETACH)
		cmd.Process.Signal(unix.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
		defer kill.Stop()
		cmd.Wait()
		return nil
	}
}

// awaitMount returns when something is mounted on dir.
func awaitMount(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		var here, above unix.Stat_t
		if err := errors.Join(unix.Stat(dir, &here), unix.Stat(filepath.Dir(dir), &above)); err != nil {
			return err
		}
		if here.Dev != above.Dev {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing was mounted on %s: %w", dir, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
