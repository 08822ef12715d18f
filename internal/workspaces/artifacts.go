package workspaces

import (
	"context"
	"io"

	"holt"
	"holt/internal/workspace"
)

// Artifacts are what is published from workspaces.
type Artifacts interface {
	// Finish stores the artifacts that are read from a workspace, which is to be deleted.
	Finish(ctx context.Context, id holt.WorkspaceID) error
	// Holds reports whether an artifact is read from a checkpoint.
	Holds(ctx context.Context, checkpoint string) (bool, error)
}

// SetArtifacts says what is published from the workspaces, before anything else uses them, and removes in the background
// deleted workspaces that artifacts were read from when the last daemon ended.
func (s *Store) SetArtifacts(ctx context.Context, a Artifacts) error {
	s.artifacts = a
	left, err := s.table.rows(ctx, `WHERE state = 'deleting'`)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	s.mounts.wg.Go(func() {
		for _, r := range left {
			if err := s.remove(ctx, r.id); err != nil {
				s.log.WarnContext(ctx, "a deleted workspace is not removed; the next start tries it again", "workspace", r.id, "err", err)
			}
		}
	})
	return nil
}

// ForArtifacts are the workspaces as artifacts are published from them; see [holt/internal/artifact.Workspaces].
type ForArtifacts struct{ *Store }

// read is [Files.read] of a workspace by its id, also while it is being deleted.
func (f ForArtifacts) read(ctx context.Context, ref string, fn func(context.Context, workspace.Files) error) error {
	id, checkpoint := holt.CutCheckpoint(ref)
	return f.useID(ctx, holt.WorkspaceID(id), reading(checkpoint, fn))
}

func (f ForArtifacts) Follow(ctx context.Context, ref, path string) (at string, err error) {
	err = f.read(ctx, ref, func(_ context.Context, files workspace.Files) error {
		at, err = files.Follow(path)
		return err
	})
	return at, err
}

func (f ForArtifacts) Stat(ctx context.Context, ref, path string) (info holt.FileInfo, err error) {
	err = f.read(ctx, ref, func(_ context.Context, files workspace.Files) error {
		info, err = files.Stat(path)
		return err
	})
	return info, err
}

func (f ForArtifacts) List(ctx context.Context, ref, dir string, spec holt.PageSpec) (page holt.Page[holt.FileInfo], err error) {
	err = f.read(ctx, ref, func(_ context.Context, files workspace.Files) error {
		page, err = files.List(dir, spec)
		return err
	})
	return page, err
}

func (f ForArtifacts) Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error {
	return f.read(ctx, ref, func(ctx context.Context, files workspace.Files) error { return files.Read(ctx, path, off, n, w) })
}

func (f ForArtifacts) Blame(ctx context.Context, ref, path string) (holt.Writer, error) {
	return f.History().Blame(ctx, ref, path)
}

func (f ForArtifacts) Checkpoint(ctx context.Context, id holt.WorkspaceID, name, note string) error {
	flushed := f.History().flush(ctx, string(id))
	return f.use(ctx, string(id), func(_ context.Context, ws *workspace.Workspace) error {
		_, err := ws.Checkpoint(workspace.CheckpointOptions{Name: name, Synced: true, CheckpointNote: workspace.CheckpointNote{Reason: note, Flushed: flushed}})
		return err
	})
}

func (f ForArtifacts) Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error) {
	return f.put(ctx, ref, spec, func(files workspace.Files) (holt.FileInfo, error) { return files.Write(ctx, path, spec, r) })
}

func (f ForArtifacts) Adopt(ctx context.Context, ref, path string, spec holt.WriteSpec, space string, sources []workspace.Source) (holt.FileInfo, error) {
	return f.put(ctx, ref, spec, func(files workspace.Files) (holt.FileInfo, error) {
		return files.Adopt(ctx, path, spec, space, sources)
	})
}

// put writes a file also while a guest has the workspace, beside it: what the guest has changed and not written yet is written first.
func (f ForArtifacts) put(ctx context.Context, ref string, spec holt.WriteSpec, fn func(workspace.Files) (holt.FileInfo, error)) (info holt.FileInfo, err error) {
	f.History().flush(ctx, ref)
	err = f.Files().use(ctx, ref, spec.User, func(_ context.Context, files workspace.Files) error {
		info, err = fn(files)
		return err
	})
	return info, err
}

func (f ForArtifacts) Release(ctx context.Context, id holt.WorkspaceID, checkpoint string) error {
	return ForComputers(f).Forget(ctx, id, checkpoint)
}
