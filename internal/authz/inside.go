package authz

import (
	"context"
	"io"

	"holt"
)

// run is asked by what is about one run: of which computer it is, and of which user.
func (w *warden) run(ctx context.Context, id holt.RunID, u use) error {
	a, free, err := free(ctx, u)
	if err != nil || free {
		return err
	}
	if a.Computer != "" {
		return denied(a)
	}
	r, err := w.n.Runs.Get(ctx, id)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !(a.Rights.Computer(r.ComputerID) && a.Rights.User(r.Spec.User)) {
		return denied(a)
	}
	return err
}

// terminal is asked by what is about one terminal: of which user it is.
func (w *warden) terminal(ctx context.Context, computer, ref string, u use) error {
	if err := w.computer(ctx, computer, u); err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	if a.Token == "" || len(a.Rights.Users) == 0 {
		return nil
	}
	t, err := w.n.Terminals.Get(ctx, computer, ref)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.User(t.Spec.User) {
		return denied(a)
	}
	return err
}

func (w *warden) port(ctx context.Context, computer string, to holt.PortAddress) error {
	a, free, err := free(ctx, change)
	if err != nil || free {
		return err
	}
	if a.Computer != "" || to.Socket != "" && !a.Rights.User("root") {
		return denied(a)
	}
	if !a.Rights.Narrow() {
		return nil
	}
	c, err := w.n.Computers.Get(ctx, computer)
	if holt.CodeOf(err) == holt.NotFound || err == nil && !a.Rights.Port(c.ID, to.Port) {
		return denied(a)
	}
	return err
}

// files is [httpapi.Files] of computers: the agent reads and writes as root.
type files struct{ w *warden }

func (n files) Stat(ctx context.Context, computer, path string) (holt.FileInfo, error) {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.Files.Stat(ctx, computer, path)
}

func (n files) List(ctx context.Context, computer, path string, page holt.PageSpec) (holt.Page[holt.FileInfo], error) {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return holt.Page[holt.FileInfo]{}, err
	}
	return n.w.n.Files.List(ctx, computer, path, page)
}

func (n files) Read(ctx context.Context, computer, path string, off, size int64, out io.Writer) error {
	if err := n.w.inside(ctx, computer, "root", look); err != nil {
		return err
	}
	return n.w.n.Files.Read(ctx, computer, path, off, size, out)
}

func (n files) Write(ctx context.Context, computer, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.Files.Write(ctx, computer, path, spec, r)
}

func (n files) Mkdir(ctx context.Context, computer string, spec holt.MkdirSpec, key string) (holt.FileInfo, error) {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.Files.Mkdir(ctx, computer, spec, key)
}

func (n files) Symlink(ctx context.Context, computer string, spec holt.SymlinkSpec, key string) (holt.FileInfo, error) {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return holt.FileInfo{}, err
	}
	return n.w.n.Files.Symlink(ctx, computer, spec, key)
}

func (n files) Remove(ctx context.Context, computer, path string, recursive bool, key string) error {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return err
	}
	return n.w.n.Files.Remove(ctx, computer, path, recursive, key)
}

func (n files) Rename(ctx context.Context, computer string, spec holt.RenameSpec, key string) error {
	if err := n.w.inside(ctx, computer, "root", change); err != nil {
		return err
	}
	return n.w.n.Files.Rename(ctx, computer, spec, key)
}
