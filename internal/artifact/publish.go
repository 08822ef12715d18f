package artifact

import (
	"cmp"
	"context"
	"io"
	"path"
	"strings"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/store/tarball"
	"holt/internal/workspace"
)

// Publish makes an artifact of a file or a directory of a computer or a workspace. A file of a workspace is not copied before
// the answer, unless it is small, or its bucket has a scan. All else is. A symbolic link is followed.
//
// Errors: NotFound, InvalidArgument (no regular file or directory; name, media type or tags), TooMany (of a computer that publishes its
// own files), those of reading it.
func (s *Store) Publish(ctx context.Context, spec holt.ArtifactSpec, key string) (holt.Artifact, error) {
	return s.PublishFor(ctx, holt.ArtifactOrigin{}, spec, key)
}

// PublishFor is Publish with an origin, of which Publish fills in the rest.
func (s *Store) PublishFor(ctx context.Context, origin holt.ArtifactOrigin, spec holt.ArtifactSpec, key string) (holt.Artifact, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Artifact]{
		Key: key, Method: "artifact.publish", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Artifact, error) {
			return s.publish(ctx, origin, spec, claim)
		},
		Again: func(ctx context.Context, id string) (holt.Artifact, error) {
			a, err := s.Get(ctx, id)
			if holt.CodeOf(err) == holt.NotFound { // the daemon ended before it was there
				return s.publish(ctx, origin, spec, idempotency.ClaimOf(idempotency.StoredKey(ctx, key)))
			}
			return a, err
		},
	})
}

func (s *Store) publish(ctx context.Context, origin holt.ArtifactOrigin, spec holt.ArtifactSpec, claim *idempotency.Claim) (holt.Artifact, error) {
	if (spec.Computer == "") == (spec.Workspace == "") {
		return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "give either a computer or a workspace").WithHint("name the one that has the file")
	}
	file := path.Clean(string(spec.Path))
	if !path.IsAbs(file) {
		return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "the path %q is not absolute", holt.Clip(file, 80)).WithHint("in a computer, the workspace is at %s", workspace.Home)
	}
	p := publication{spec: spec, claim: claim, ref: spec.Workspace, file: file, most: holt.MostArtifact}
	p.row = row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: cmp.Or(spec.Name, path.Base(file)), MediaType: spec.MediaType, Tags: spec.Tags, Origin: origin}}
	p.row.Origin.Path = cmp.Or(origin.Path, holt.OSString(file))
	if spec.Computer == "" {
		return s.fromWorkspace(ctx, p)
	}
	c, err := s.cfg.Computers.Get(ctx, spec.Computer)
	if err == nil {
		var end func()
		if end, err = s.alone(ctx); err == nil {
			defer end()
			err = s.room(ctx, c, &p)
		}
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row.Origin.Computer, p.row.Origin.ComputerID = c.Name, c.ID
	inHome := false
	if file == workspace.Home && spec.Name == "" {
		p.row.Name = c.Name
	}
	if p.file, inHome = strings.CutPrefix(file+"/", workspace.Home+"/"); !inHome {
		p.file = file
		return s.fromComputer(ctx, p)
	}
	p.file = path.Join("/", p.file)
	return s.fromWorkspace(ctx, p)
}

// publication is one call of Publish.
type publication struct {
	row   row
	spec  holt.ArtifactSpec
	claim *idempotency.Claim
	ref   string // of the workspace
	file  string // in the workspace, or in the computer
	most  int64  // bytes that it may have
}

// room fills in what a computer has to do with a publication: its workspace, and the bytes that it may publish, which are
// bounded by its disk: its agent may be hostile.
func (s *Store) room(ctx context.Context, c holt.Computer, p *publication) error {
	var n, bytes int64
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) (err error) {
		if p.ref, err = workspaceOf(tx, c.ID); err != nil {
			return err
		}
		return tx.Query(`SELECT count(*), coalesce(sum(size), 0) FROM artifact WHERE computer = ?`, []any{c.ID}, func(r *db.Row) error { n, bytes = r.Int64(0), r.Int64(1); return nil })
	})
	if err != nil {
		return err
	}
	a, _ := holt.ActorOf(ctx)
	p.row.own, p.most = a.Computer == c.ID, int64(c.DiskSizeMB)<<20
	if !p.row.own {
		return nil
	}
	if p.most -= bytes; n >= holt.MostOwnArtifacts || p.most < 0 {
		return holt.Errorf(holt.TooMany, "%s has %d artifacts with %d MiB; from inside, the maximum is %d with %d MiB", c.Name, n, bytes>>20, holt.MostOwnArtifacts, c.DiskSizeMB).
			WithHint("its owner can publish more, and delete some: holt artifact list --from %s", c.Name)
	}
	return nil
}

// alone waits until the computer that calls, if one does, stores no other artifact, so that [Store.room] bounds what all have together.
func (s *Store) alone(ctx context.Context) (end func(), err error) {
	a, _ := holt.ActorOf(ctx)
	if a.Computer == "" {
		return func() {}, nil
	}
	mine := make(chan struct{})
	for {
		other, busy := s.own.LoadOrStore(a.Computer, mine)
		if !busy {
			return func() { s.own.Delete(a.Computer); close(mine) }, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// workspaceOf returns the id of a computer's workspace.
func workspaceOf(tx *db.Tx, c holt.ComputerID) (id string, err error) {
	err = tx.Query(`SELECT workspace FROM computer WHERE id = ?`, []any{c}, func(r *db.Row) error { id = r.Text(0); return nil })
	return id, err
}

// takes looks at what is published: a directory, or a regular file that is not too large, as only a sparse one can be.
//
// Errors: InvalidArgument, TooMany.
func (p *publication) takes(info holt.FileInfo) error {
	switch name := holt.Clip(string(p.row.Origin.Path), 80); {
	case info.Kind == "dir":
		p.row.Tree = true
		return nil
	case info.Kind != "file":
		return holt.Errorf(holt.InvalidArgument, "%s is not a regular file or a directory", name)
	case p.row.Tree:
		return holt.Errorf(holt.Conflict, "%s was a directory, and is a file now", name).WithHint("try again")
	case info.Size > p.most:
		return holt.Errorf(holt.TooMany, "%s has %d bytes", name, info.Size).WithHint("at most %d can be published now", p.most)
	}
	return nil
}

// fromComputer publishes a file that is not in the workspace: its bytes are copied now.
func (s *Store) fromComputer(ctx context.Context, p publication) (holt.Artifact, error) {
	id := string(p.row.Origin.ComputerID)
	file, info, err := holt.Follow(p.file, func(file string) (holt.FileInfo, error) { return s.cfg.Computers.Stat(ctx, id, file) })
	if err == nil {
		err = p.takes(info)
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row.Origin.ModTime = &info.ModTime
	if !p.row.Tree {
		p.row.Size = info.Size
	}
	return s.put(ctx, p.row, p.spec.RetainMS, p.claim, func(w io.Writer) error { return p.read(ctx, s.cfg.Computers, id, file, w) })
}

// read writes what is published to w: a file, or a directory as a tar stream.
func (p *publication) read(ctx context.Context, from tarball.Source, ref, file string, w io.Writer) error {
	out := &bounded{w, p.most}
	if p.row.Tree {
		return tarball.Pack(ctx, from, ref, file, out)
	}
	return from.Read(ctx, ref, file, 0, -1, out)
}

// bounded refuses more bytes than there may be: an agent may be hostile.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, holt.Errorf(holt.TooMany, "the file is larger than what can be published now").WithHint("a computer can publish as many bytes as its disk has")
	}
	return b.w.Write(p)
}

// fromWorkspace publishes a file of a workspace, by a checkpoint.
func (s *Store) fromWorkspace(ctx context.Context, p publication) (holt.Artifact, error) {
	ws, err := s.cfg.Workspaces.Get(ctx, p.ref)
	if err != nil {
		return holt.Artifact{}, err
	}
	file, err := s.cfg.Workspaces.Follow(ctx, string(ws.ID), p.file)
	if err == nil {
		var info holt.FileInfo
		if info, err = s.cfg.Workspaces.Stat(ctx, string(ws.ID), file); err == nil {
			if err = p.takes(info); !p.row.Tree {
				p.row.Size = info.Size
			}
		}
	}
	if holt.CodeOf(err) == holt.NotFound {
		err = holt.Errorf(holt.NotFound, "there is no file %s", holt.Clip(string(p.row.Origin.Path), 80)).WithHint("list its directory to see what exists")
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	if p.row.Name == "/" {
		p.row.Name = ws.Name
	}
	p.row.Origin.Workspace, p.row.Origin.WorkspaceID, p.row.held, p.row.source = ws.Name, ws.ID, ws.ID, file
	a, b, err := s.begin(ctx, p.row, p.spec.RetainMS, p.claim)
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row = a
	if err := s.hold(ctx, &p, b); err != nil {
		s.forget(p.row)
		return holt.Artifact{}, err
	}
	defer s.notify()
	if p.row.State == holt.ArtifactStoring && p.row.Size > quick {
		return p.row.shown(ctx), nil
	}
	ctx = context.WithoutCancel(ctx) // it is there
	if err := s.finish(ctx, a.ID); err != nil {
		s.cfg.Log.WarnContext(ctx, "an artifact is not stored yet", "artifact", a.ID, "err", err)
	}
	return s.Get(ctx, string(a.ID))
}

// mostCommand is how many bytes of a command line the origin keeps.
const mostCommand = 2 << 10

// written fills in who wrote the file, unless it was changed since the checkpoint.
func (s *Store) written(ctx context.Context, a *row) {
	w, err := s.cfg.Workspaces.Blame(ctx, string(a.held), a.source)
	if err != nil || w.Kind == "" {
		return
	}
	if now, err := s.cfg.Workspaces.Stat(ctx, string(a.held), a.source); err != nil || !now.ModTime.Equal(*a.Origin.ModTime) {
		return
	}
	a.Origin.Writer = &w
	id, err := holt.ParseRunID(w.Run)
	if err != nil {
		return
	}
	r, err := s.cfg.Computers.Run(ctx, id)
	if err != nil {
		return
	}
	a.Origin.Command = holt.OSString(holt.Clip(string(r.Spec.Command), mostCommand))
	for left, i := mostCommand, 0; i < len(r.Spec.Argv) && left > 0; i++ {
		arg := holt.Clip(r.Spec.Argv[i], left)
		a.Origin.Argv, left = append(a.Origin.Argv, arg), left-len(arg)
	}
}

// hold takes the checkpoint that an artifact is read from, and makes the artifact visible.
func (s *Store) hold(ctx context.Context, p *publication, b bucket) error {
	a := &p.row
	claimed := a.Size
	if err := s.cfg.Workspaces.Checkpoint(ctx, a.held, string(a.ID), "an artifact is published"); err != nil {
		return err
	}
	if err := s.point("artifact/held"); err != nil {
		return err
	}
	info, err := s.cfg.Workspaces.Stat(ctx, holt.AtCheckpoint(string(a.held), string(a.ID)), a.source)
	if err == nil {
		err = p.takes(info)
	}
	if err != nil {
		return err
	}
	a.Size, a.Origin.ModTime, a.State, a.Newest = info.Size, &info.ModTime, holt.ArtifactStoring, true
	s.written(ctx, a)
	if b.scan != "" || a.Tree { // it can be read only when it is stored
		a.State, a.Size = writing, claimed
		at := holt.AtCheckpoint(string(a.held), string(a.ID))
		return s.store(ctx, a, b, func(w io.Writer) error { return p.read(ctx, s.cfg.Workspaces, at, a.source, w) })
	}
	return s.write(ctx, func(tx *db.Tx) error {
		there := false
		err := tx.Query(`UPDATE artifact SET state = 'storing', size = ?, origin = ? WHERE seq = ? AND EXISTS (SELECT 1 FROM workspace WHERE id = ? AND state = 'ready') RETURNING 1`,
			[]any{a.Size, mustJSON(a.Origin), a.seq, a.held}, func(*db.Row) error { there = true; return nil })
		if err == nil && !there {
			err = holt.Errorf(holt.NotFound, "the workspace %s was deleted", a.Origin.Workspace)
		}
		if err != nil {
			return err
		}
		return show(tx, *a, b, s.cfg.Now())
	})
}
