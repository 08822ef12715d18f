package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"path"
	"strings"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

const (
	writing  = holt.ArtifactState("writing")  // not there yet
	deleting = holt.ArtifactState("deleting") // its bytes are being removed
	body     = "body"                         // the part of its space
	inline   = 16 << 10                       // bytes of an artifact that are kept in its row
	quick    = 1 << 20                        // bytes of an artifact that are stored before the answer
)

// begin inserts the row of an artifact that is not there yet.
func (s *Store) begin(ctx context.Context, a row, retain time.Duration, claim *idempotency.Claim) (row, bucket, error) {
	var b bucket
	a.ID, a.CreatedAt, a.State = holt.NewArtifactID(), s.cfg.Now().UTC(), writing
	a.MediaType = cmp.Or(a.MediaType, mime.TypeByExtension(path.Ext(a.Name)), "application/octet-stream")
	if _, err := holt.ParseArtifactName(a.Name); err != nil {
		return a, b, err
	}
	if _, _, err := mime.ParseMediaType(a.MediaType); err != nil {
		return a, b, holt.Errorf(holt.InvalidArgument, "invalid media type %q", holt.Clip(a.MediaType, 80)).WithHint("use one such as text/html or application/pdf")
	}
	if err := errors.Join(checkTags(a.Tags), checkRetention(retain.Milliseconds())); err != nil {
		return a, b, err
	}
	a.Origin.By = by(ctx)
	err := s.write(ctx, func(tx *db.Tx) (err error) {
		if b, err = bucketFor(ctx, tx, a.Bucket, a.CreatedAt); err != nil {
			return err
		}
		a.Bucket, a.bucketID, a.Tenant = b.name, b.id, b.tenant
		if retain = max(retain, b.retain); retain > 0 {
			until := a.CreatedAt.Add(retain)
			a.RetainUntil = &until
		}
		if err := claim.Bind(tx, string(a.ID)); err != nil {
			return err
		}
		err = tx.Exec(`INSERT INTO artifact (id, bucket, name, state, held, source, size, type, created, retain, tags, computer, called, origin) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, a.bucketID, a.Name, a.State, a.held, a.source, a.Size, a.MediaType, a.CreatedAt.UnixNano(), nanos(a.RetainUntil), mustJSON(a.Tags), a.Origin.ComputerID, a.Origin.Computer, mustJSON(a.Origin))
		if err != nil {
			return err
		}
		return tx.Query(`SELECT last_insert_rowid()`, nil, func(r *db.Row) error { a.seq = r.Int64(0); return nil })
	})
	return a, b, err
}

// by names the caller.
func by(ctx context.Context) string {
	switch a, _ := holt.ActorOf(ctx); {
	case a.Computer != "":
		return "computer " + a.Name
	case a.Schedule != "":
		return "schedule " + a.Name
	case a.Token != "":
		return "token " + a.Name
	}
	return "person"
}

// Put stores what r has as an artifact, which appears when all of it has arrived.
//
// Errors: NotFound (the bucket), InvalidArgument (name, media type or tags), OutOfSpace, those of r.
func (s *Store) Put(ctx context.Context, spec holt.ArtifactPut, r io.Reader) (holt.Artifact, error) {
	ctx, err := holt.AskBefore(ctx)
	if err != nil {
		return holt.Artifact{}, err
	}
	a := row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: spec.Name, MediaType: spec.MediaType, Tags: spec.Tags}}
	return s.put(ctx, a, retention(spec.RetainMS), nil, func(w io.Writer) error { _, err := io.Copy(w, r); return err })
}

// retention is at least that of the bucket.
func retention(ms int64) time.Duration {
	if ms > mostRetention {
		ms = mostRetention + 1 // which is refused
	}
	return time.Duration(ms) * time.Millisecond
}

// put stores what read writes.
func (s *Store) put(ctx context.Context, a row, retain time.Duration, claim *idempotency.Claim, read func(io.Writer) error) (holt.Artifact, error) {
	a, b, err := s.begin(ctx, a, retain, claim)
	if err != nil {
		return holt.Artifact{}, err
	}
	if err := s.store(ctx, &a, b, read); err != nil {
		s.forget(a)
		return holt.Artifact{}, err
	}
	s.notify() // it may have replaced others
	return a.Artifact, nil
}

// store has read write the bytes of an artifact, keeps them, and makes the artifact ready.
func (s *Store) store(ctx context.Context, a *row, b bucket, read func(io.Writer) error) error {
	w := &writer{ctx: ctx, s: s, id: string(a.ID), sum: sha256.New()}
	err := read(w)
	if err == nil {
		err = w.commit()
	}
	if err == nil {
		err = s.point("artifact/stored")
	}
	if err != nil {
		w.abort()
		return hosterror.Describe(err)
	}
	was := a.State
	a.Size, a.SHA256, a.State, a.inline = w.n, fmt.Sprintf("%x", w.sum.Sum(nil)), holt.ArtifactReady, w.archive == nil
	return s.write(ctx, func(tx *db.Tx) error {
		there := false
		err := tx.Query(`UPDATE artifact SET state = 'ready', size = ?, sha256 = ?, body = ? WHERE seq = ? AND state = ? RETURNING 1`,
			[]any{w.n, w.sum.Sum(nil), w.row(), a.seq, was}, func(*db.Row) error { there = true; return nil })
		if err == nil && !there {
			err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", a.ID)
		}
		if err != nil || was == holt.ArtifactStoring {
			return err
		}
		a.Newest = true
		return show(tx, *a, b, s.cfg.Now())
	})
}

// forget removes an artifact that has not become visible.
func (s *Store) forget(a row) {
	err := s.write(s.ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE seq = ? AND state = 'writing'`, a.seq)
	})
	if err != nil && s.ctx.Err() == nil { // the next daemon does it
		s.cfg.Log.Warn("an artifact that is not complete is not removed yet", "artifact", a.ID, "err", err)
	}
	s.notify()
}

// writer keeps the bytes of one artifact: in memory while they are few, then in the archive.
type writer struct {
	ctx     context.Context
	s       *Store
	id      string
	few     []byte
	archive *chunk.Writer // nil while they are few
	sum     hash.Hash
	n       int64
}

func (w *writer) Write(p []byte) (int, error) {
	w.sum.Write(p)
	before := w.n
	w.n += int64(len(p))
	if w.n <= inline {
		w.few = append(w.few, p...)
		return len(p), nil
	}
	if w.archive == nil {
		w.archive = w.s.cfg.Archive.Create(w.id, body)
		if err := w.archive.Append(w.ctx, 0, w.few); err != nil {
			return 0, err
		}
		w.few = nil
	}
	if err := w.archive.Append(w.ctx, before, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) commit() error {
	if w.archive == nil {
		return nil
	}
	_, err := w.archive.Commit(w.ctx)
	return err
}

func (w *writer) abort() {
	if w.archive != nil {
		w.archive.Abort()
	}
}

// row is the bytes for the artifact's row; nil if they are in the archive.
func (w *writer) row() any {
	if w.archive != nil {
		return nil
	}
	return append([]byte{}, w.few...)
}

// Publish makes an artifact of a file of a computer or a workspace. A file of a workspace is not copied before the answer,
// unless it is small. Other files of computers are. A symbolic link is followed.
//
// Errors: NotFound, InvalidArgument (no regular file; name, media type or tags), TooMany (of a computer that publishes its
// own files), those of reading it.
func (s *Store) Publish(ctx context.Context, spec holt.ArtifactSpec, key string) (holt.Artifact, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Artifact]{
		Key: key, Method: "artifact.publish", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Artifact, error) {
			return s.publish(ctx, spec, claim)
		},
		Again: func(ctx context.Context, id string) (holt.Artifact, error) {
			a, err := s.Get(ctx, id)
			if holt.CodeOf(err) == holt.NotFound { // the daemon ended before it was there
				return s.publish(ctx, spec, idempotency.ClaimOf(idempotency.StoredKey(ctx, key)))
			}
			return a, err
		},
	})
}

func (s *Store) publish(ctx context.Context, spec holt.ArtifactSpec, claim *idempotency.Claim) (holt.Artifact, error) {
	if (spec.Computer == "") == (spec.Workspace == "") {
		return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "give either a computer or a workspace").WithHint("name the one that has the file")
	}
	file := path.Clean(string(spec.Path))
	if !path.IsAbs(file) {
		return holt.Artifact{}, holt.Errorf(holt.InvalidArgument, "the path %q is not absolute", holt.Clip(file, 80)).WithHint("in a computer, the workspace is at %s", workspace.Home)
	}
	p := publication{spec: spec, claim: claim, ref: spec.Workspace, file: file, most: holt.MostArtifact}
	p.row = row{Artifact: holt.Artifact{Bucket: spec.Bucket, Name: cmp.Or(spec.Name, path.Base(file)), MediaType: spec.MediaType, Tags: spec.Tags, Origin: holt.ArtifactOrigin{Path: holt.OSString(file)}}}
	if spec.Computer == "" {
		return s.fromWorkspace(ctx, p)
	}
	c, err := s.cfg.Computers.Get(ctx, spec.Computer)
	if err == nil {
		err = s.room(ctx, c, &p)
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row.Origin.Computer, p.row.Origin.ComputerID = c.Name, c.ID
	inHome := false
	if p.file, inHome = strings.CutPrefix(file, workspace.Home+"/"); !inHome {
		return s.fromComputer(ctx, p)
	}
	p.file = "/" + p.file
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
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		err := tx.Query(`SELECT workspace FROM computer WHERE id = ?`, []any{c.ID}, func(r *db.Row) error { p.ref = r.Text(0); return nil })
		if err != nil {
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

// mostLinks is how many symbolic links are followed.
const mostLinks = 40

// follow returns the file that a path leads to; home is what absolute targets begin with.
func follow(file, home string, stat func(file string) (holt.FileInfo, error)) (string, holt.FileInfo, error) {
	for range mostLinks {
		info, err := stat(file)
		if err != nil || info.Kind != "symlink" {
			return file, info, err
		}
		target := string(info.Target)
		if !path.IsAbs(target) {
			file = path.Join(path.Dir(file), target)
			continue
		}
		inside := false
		if file, inside = strings.CutPrefix(path.Clean(target), home); !inside || home != "" && !strings.HasPrefix(file, "/") {
			return file, info, holt.Errorf(holt.InvalidArgument, "the link leads out of the workspace, to %s", holt.Clip(target, 80)).WithHint("publish that file")
		}
	}
	return file, holt.FileInfo{}, holt.Errorf(holt.InvalidArgument, "too many symbolic links").WithHint("publish the file that they lead to")
}

// regular returns InvalidArgument unless a path is a regular file that is not too large, as only a sparse one can be.
func (p publication) regular(info holt.FileInfo) error {
	switch name := holt.Clip(string(p.row.Origin.Path), 80); {
	case info.Kind != "file":
		return holt.Errorf(holt.InvalidArgument, "%s is not a regular file", name).WithHint("publish a file; make one of a directory with tar or zip")
	case info.Size > p.most:
		return holt.Errorf(holt.TooMany, "%s has %d bytes", name, info.Size).WithHint("at most %d can be published now", p.most)
	}
	return nil
}

// fromComputer publishes a file that is not in the workspace: its bytes are copied now.
func (s *Store) fromComputer(ctx context.Context, p publication) (holt.Artifact, error) {
	id := string(p.row.Origin.ComputerID)
	file, info, err := follow(p.file, "", func(file string) (holt.FileInfo, error) { return s.cfg.Computers.Stat(ctx, id, file) })
	if err == nil {
		err = p.regular(info)
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row.Origin.ModTime = &info.ModTime
	return s.put(ctx, p.row, retention(p.spec.RetainMS), p.claim, func(w io.Writer) error {
		return s.cfg.Computers.Read(ctx, id, file, 0, -1, &bounded{w, p.most})
	})
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
	file, info, err := follow(p.file, workspace.Home, func(file string) (holt.FileInfo, error) { return s.cfg.Workspaces.Stat(ctx, string(ws.ID), file) })
	if err == nil {
		err = p.regular(info)
	}
	if holt.CodeOf(err) == holt.NotFound {
		err = holt.Errorf(holt.NotFound, "there is no file %s", holt.Clip(string(p.row.Origin.Path), 80)).WithHint("list its directory to see what exists")
	}
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row.Origin.Workspace, p.row.Origin.WorkspaceID, p.row.held, p.row.source = ws.Name, ws.ID, ws.ID, file
	a, b, err := s.begin(ctx, p.row, retention(p.spec.RetainMS), p.claim)
	if err != nil {
		return holt.Artifact{}, err
	}
	p.row = a
	if err := s.hold(ctx, &p, b); err != nil {
		s.forget(a)
		return holt.Artifact{}, err
	}
	defer s.notify()
	if p.row.Size > quick {
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
	if err := s.cfg.Workspaces.Checkpoint(ctx, a.held, string(a.ID), "an artifact is published"); err != nil {
		return err
	}
	if err := s.point("artifact/held"); err != nil {
		return err
	}
	info, err := s.cfg.Workspaces.Stat(ctx, holt.AtCheckpoint(string(a.held), string(a.ID)), a.source)
	if err == nil {
		err = p.regular(info)
	}
	if err != nil {
		return err
	}
	a.Size, a.Origin.ModTime, a.State, a.Newest = info.Size, &info.ModTime, holt.ArtifactStoring, true
	s.written(ctx, a)
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

// notify has the artifacts stored that are not.
func (s *Store) notify() {
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// watch stores what was published and removes what was deleted, of each tenant one artifact after the other, until Close.
func (s *Store) watch() {
	retry := time.NewTicker(again)
	defer retry.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.work:
		case <-retry.C:
		}
		list, err := s.rows(s.ctx, `WHERE a.state IN ('storing', 'deleting') OR a.held <> '' AND a.state = 'ready' ORDER BY a.seq`)
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("artifacts are not stored; they are tried again later", "again_in", again, "err", err)
		}
		of := map[string][]row{}
		for _, a := range list {
			of[a.Tenant] = append(of[a.Tenant], a)
		}
		for tenant, list := range of {
			if _, busy := s.busy.LoadOrStore(tenant, true); busy {
				continue
			}
			s.wg.Go(func() {
				ok := s.finishAll(list)
				s.busy.Delete(tenant)
				if ok { // more may have been published meanwhile
					s.notify()
				}
			})
		}
	}
}

// finishAll stores artifacts; false: one could not be.
func (s *Store) finishAll(list []row) (ok bool) {
	ok = true
	for _, a := range list {
		err := error(nil)
		if a.State == deleting {
			err = s.purge(s.ctx, a)
		} else {
			err = s.finish(s.ctx, a.ID)
		}
		if err != nil && s.ctx.Err() == nil {
			s.cfg.Log.Error("an artifact is not stored or removed; it is tried again later", "artifact", a.ID, "again_in", again, "err", err)
			ok = false
		}
	}
	return ok
}

// Finish stores the artifacts that are read from a workspace, which is to be deleted.
func (s *Store) Finish(ctx context.Context, id holt.WorkspaceID) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	list, err := s.rows(ctx, `WHERE a.held = ? AND a.state = 'storing'`, id)
	for _, a := range list {
		if err := s.finish(ctx, a.ID); err != nil {
			return holt.Errorf(holt.CodeOf(err), "the artifact %s/%s of the workspace is not stored yet: %w", a.Bucket, a.Name, err).WithHint("try again, or delete the artifact first: holt artifact delete %s", a.ID)
		}
	}
	return err
}

// Holds reports whether an artifact is read from a checkpoint.
func (s *Store) Holds(ctx context.Context, checkpoint string) (bool, error) {
	list, err := s.rows(ctx, `WHERE a.id = ? AND a.held <> '' AND a.state <> 'ready'`, checkpoint)
	return len(list) > 0, err
}

// storing is an artifact that is being stored.
type storing struct {
	done   chan struct{}      // closed at its end
	cancel context.CancelFunc // the artifact is deleted
}

// finish stores the bytes of an artifact in state storing, and deletes the checkpoint. If another call does that it waits.
func (s *Store) finish(ctx context.Context, id holt.ArtifactID) error {
	for {
		s.mu.Lock()
		other := s.storing[id]
		if other == nil {
			break
		}
		s.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	mine := &storing{make(chan struct{}), cancel}
	s.storing[id] = mine
	s.mu.Unlock()
	defer func() {
		cancel()
		s.mu.Lock()
		delete(s.storing, id)
		s.mu.Unlock()
		close(mine.done)
	}()
	list, err := s.rows(ctx, `WHERE a.id = ? AND a.held <> '' AND `+visible, id)
	if err != nil || len(list) == 0 {
		return err
	}
	a := list[0]
	if a.State == holt.ArtifactStoring {
		at := holt.AtCheckpoint(string(a.held), string(a.ID))
		err = s.store(ctx, &a, bucket{}, func(w io.Writer) error { return s.cfg.Workspaces.Read(ctx, at, a.source, 0, -1, w) })
		if err != nil {
			if _, lost := s.Get(context.WithoutCancel(ctx), string(id)); holt.CodeOf(lost) == holt.NotFound {
				return nil // it was deleted
			}
		}
	}
	if err == nil {
		err = s.release(ctx, a)
	}
	return err
}

// release deletes the checkpoint of an artifact that is not read from it any more.
func (s *Store) release(ctx context.Context, a row) error {
	if a.held == "" {
		return nil
	}
	if err := s.cfg.Workspaces.Release(ctx, a.held, string(a.ID)); err != nil {
		return err
	}
	return s.cfg.DB.Write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET held = '', source = '' WHERE seq = ?`, a.seq)
	})
}
