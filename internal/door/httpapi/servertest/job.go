package servertest

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"holt"
	"holt/internal/computer"
	"holt/internal/idempotency"
	"holt/internal/job"
	"holt/internal/network/netstack"
	"holt/internal/store/db"
	"holt/internal/store/parcel"
)

// jobSet is the real jobs over computers in memory: what a job's command does is
// seen in its workspace, which is a directory.
type jobSet struct {
	db    *db.DB
	store *job.Store
}

// openJobs opens them, once; Close ends them.
func (m *Memory) openJobs() *job.Store {
	if m.jobs != nil {
		return m.jobs.store
	}
	m.jobs = &jobSet{}
	dir := filepath.Join(m.dir, "jobs")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		m.jobs.db, err = db.Open(filepath.Join(dir, "holt.db"), computer.Schema+job.Schema, "")
	}
	if err == nil {
		m.jobs.store, err = job.Open(context.Background(), job.Config{DB: m.jobs.db, Keys: idempotency.New(m.jobs.db), Dir: filepath.Join(dir, "output"),
			Computers: jobComputers{m}, Runs: runs{m}, Workspaces: jobSpaces{m, filepath.Join(dir, "files")}, Log: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		panic(err) // a test's directory
	}
	return m.jobs.store
}

func (j *jobSet) close() {
	j.store.Close()
	_ = j.db.Close() // its file goes with the test
}

type jobComputers struct{ m *Memory }

func (n jobComputers) CheckFor(_ context.Context, spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if spec.Network != nil {
		if _, err := netstack.ParsePolicy(*spec.Network); err != nil {
			return spec, err
		}
	}
	if spec.SecretsOf != "" {
		if _, err := n.m.computer(spec.SecretsOf); err != nil {
			return spec, err
		}
	}
	return computer.CheckComputer(spec)
}

func (n jobComputers) CreateFor(_ context.Context, id holt.JobID, spec holt.ComputerSpec) (holt.Computer, error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if spec.Template != "base" {
		return holt.Computer{}, holt.Errorf(holt.NotFound, "there is no template %q", spec.Template).WithHint("templates are base")
	}
	now := time.Now().UTC()
	c := &holt.Computer{ID: holt.NewComputerID(), Name: spec.Name, Template: spec.Template, State: holt.ComputerRunning, Engine: "memory", CPUs: spec.CPUs,
		MemoryMB: spec.MemoryMB, DiskSizeMB: spec.DiskSizeMB, Workspace: spec.Name, CreatedAt: now, StartedAt: &now, BootMS: 1, Job: id}
	if err := n.m.reach(c.ID, spec.Network, holt.NetworkPolicy{Egress: holt.EgressOpen}); err != nil {
		return *c, err
	}
	if err := n.m.lend(c.ID, spec.SecretsOf); err != nil {
		return *c, err
	}
	n.m.computers[c.ID] = c
	if err := os.MkdirAll(filepath.Dir(n.m.home(c)), 0o755); err != nil {
		return *c, err
	}
	return *c, os.Symlink(filepath.Join(n.m.dir, "jobs/files", spec.Workspace), n.m.home(c))
}

func (n jobComputers) OfJob(_ context.Context, id holt.JobID) (list []holt.Computer, err error) {
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	for _, c := range n.m.computers {
		if c.Job == id {
			list = append(list, *c)
		}
	}
	return list, nil
}

func (n jobComputers) Resume(ctx context.Context, ref, key string) (holt.Computer, error) {
	return computers(n).Start(ctx, ref, key)
}

func (n jobComputers) Delete(ctx context.Context, ref, key string) (holt.DeletedComputer, error) {
	n.m.mu.Lock()
	c, err := n.m.computer(ref)
	var here []*run
	for _, r := range n.m.runs {
		if err == nil && r.info.ComputerID == c.ID {
			here = append(here, r)
		}
	}
	n.m.mu.Unlock()
	for _, r := range here {
		r.kill()
		<-r.gone
	}
	return computers(n).Delete(ctx, ref, key)
}

func (jobComputers) Draining() bool { return false }

func (jobComputers) Room(context.Context, int, map[holt.JobID]int) error { return nil }

// jobSpaces are directories, each called as a workspace's id.
type jobSpaces struct {
	m   *Memory
	dir string
}

func (n jobSpaces) path(id holt.WorkspaceID, path string) string {
	return filepath.Join(n.dir, string(id), path)
}

func (n jobSpaces) Find(ctx context.Context, ref string) (holt.WorkspaceID, error) {
	w, err := workspaces{n.m}.Get(ctx, ref)
	return w.ID, err
}

func (n jobSpaces) Make(ctx context.Context, id holt.WorkspaceID, _ string, from holt.WorkspaceID, at string) error {
	if _, err := os.Stat(n.path(id, "")); err == nil {
		return nil
	}
	if err := os.MkdirAll(n.path(id, ""), 0o755); err != nil || from == "" {
		return err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		if _, err := os.Stat(n.path(from, "")); err == nil {
			w.CloseWithError(n.Export(ctx, from, "/", w))
			return
		}
		w.CloseWithError(workspaces{n.m}.Export(ctx, string(from), holt.ExportSpec{Path: "/", At: at}, w))
	}()
	_, err := n.Import(ctx, id, r)
	return err
}

func (n jobSpaces) Mkdir(_ context.Context, id holt.WorkspaceID, path string) error {
	return os.MkdirAll(n.path(id, path), 0o755)
}

func (jobSpaces) Flush(context.Context, holt.WorkspaceID) error { return nil }

func (n jobSpaces) Measure(_ context.Context, id holt.WorkspaceID, path string) (u holt.Usage, err error) {
	u.Path = holt.OSString(path)
	err = filepath.WalkDir(n.path(id, path), func(_ string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir():
			u.Dirs++
		default:
			u.Files++
			if info, err := d.Info(); err == nil {
				u.Bytes += info.Size()
			}
		}
		return err
	})
	if os.IsNotExist(err) {
		err = holt.Errorf(holt.NotFound, "there is no %s", path)
	}
	return u, err
}

func (n jobSpaces) Import(ctx context.Context, id holt.WorkspaceID, in io.Reader) (out holt.TransferReport, err error) {
	p, err := parcel.NewReader(in)
	if err != nil {
		return out, holt.Errorf(holt.InvalidArgument, "import: %w", err)
	}
	got, err := parcel.Unpack(ctx, p, n.path(id, ""), parcel.Options{})
	return holt.TransferReport{Entries: got.Entries, Bytes: got.Bytes}, err
}

func (n jobSpaces) Export(ctx context.Context, id holt.WorkspaceID, path string, out io.Writer) error {
	p, err := parcel.NewWriter(out, parcel.Totals{})
	if err == nil {
		_, err = parcel.Pack(ctx, n.path(id, cmp.Or(path, "/")), p, parcel.Options{})
	}
	if err == nil {
		err = p.Close()
	}
	return err
}

func (n jobSpaces) Remove(_ context.Context, id holt.WorkspaceID) error {
	return os.RemoveAll(n.path(id, ""))
}
