package artifact

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/chunk"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// Workspaces is the part of workspaces that artifacts are published from. ref is a name or id, or one with a checkpoint
// ([holt.AtCheckpoint]).
type Workspaces interface {
	Get(ctx context.Context, ref string) (holt.Workspace, error)
	// Follow returns where a path leads if a symbolic link is at its end. InvalidArgument: out of the workspace.
	Follow(ctx context.Context, ref, path string) (string, error)
	Stat(ctx context.Context, ref, path string) (holt.FileInfo, error)
	List(ctx context.Context, ref, dir string, page holt.PageSpec) (holt.Page[holt.FileInfo], error)
	Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error
	Blame(ctx context.Context, ref, path string) (holt.Writer, error)
	// Checkpoint takes a checkpoint that survives power loss.
	Checkpoint(ctx context.Context, id holt.WorkspaceID, name, note string) error
	// Write replaces the content of a file; see [workspace.Files.Write].
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
	// Adopt is Write of bytes that the archive has; see [workspace.Files.Adopt].
	Adopt(ctx context.Context, ref, path string, spec holt.WriteSpec, space string, sources []workspace.Source) (holt.FileInfo, error)
	// Release deletes a checkpoint. It is no error if there is none.
	Release(ctx context.Context, id holt.WorkspaceID, checkpoint string) error
}

// Computers is the part of computers that artifacts are published from.
type Computers interface {
	Get(ctx context.Context, ref string) (holt.Computer, error)
	// Stat, List and Read are of files, as root in the computer sees them.
	Stat(ctx context.Context, ref, path string) (holt.FileInfo, error)
	List(ctx context.Context, ref, dir string, page holt.PageSpec) (holt.Page[holt.FileInfo], error)
	Read(ctx context.Context, ref, path string, off, n int64, w io.Writer) error
	// Write replaces the content of a file.
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
	Run(ctx context.Context, id holt.RunID) (holt.Run, error)
}

// Config is the configuration of a [Store]. All but Now, Log and Fail must be set.
type Config struct {
	DB         *db.DB // with [Schema]
	Keys       *idempotency.Keys
	Archive    *chunk.Archive
	Workspaces Workspaces
	Computers  Computers
	Address    Address                  // of links
	Now        func() time.Time         // nil: time.Now
	Log        *slog.Logger             // nil: slog.Default
	Fail       func(point string) error // tests: called at each step; an error ends the work at the step
}

// Store is the artifacts of one daemon.
type Store struct {
	cfg     Config
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	work    chan struct{} // has an element when there may be artifacts to store
	rules   chan struct{} // has an element when rules of buckets may delete some
	scans   chan struct{} // has an element for each scan that runs
	scansOf sync.Map      // by tenant: chan struct{}, with an element for each that runs or waits for one of the above
	own     sync.Map      // computers that are storing an artifact of their own: chan struct{}, closed at its end

	scanTime time.Duration // after which a scan is ended

	queries db.Turns
	indexes indexes
	busy    sync.Map // tenants whose artifacts are being stored

	mu      sync.Mutex
	storing map[holt.ArtifactID]*storing
	sends   map[holt.ArtifactID]*sends
}

// again is how long the bytes of an artifact that could not be stored wait until they are tried again.
const again = time.Minute

// Open continues to store what was published, and to remove what was deleted or is left over from a crash.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	s := &Store{cfg: cfg, work: make(chan struct{}, 1), rules: make(chan struct{}, 1), scans: make(chan struct{}, mostScans), scanTime: mostScanTime, storing: map[holt.ArtifactID]*storing{}, sends: map[holt.ArtifactID]*sends{}, queries: db.Turns{Most: 2, OfTenant: 1}, indexes: indexes{decoding: make(chan struct{}, mostDecoding)}}
	err := s.write(ctx, func(tx *db.Tx) error {
		return tx.Exec(`UPDATE artifact SET state = 'deleting' WHERE state = 'writing'`)
	})
	if err != nil {
		return nil, fmt.Errorf("continue artifacts: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(s.watch)
	s.wg.Go(s.keepRules)
	s.notify()
	s.applyRules()
	return s, nil
}

// Close stops storing. The next Open continues it.
func (s *Store) Close() error {
	s.cancel()
	s.wg.Wait()
	return nil
}

// point is a step at which a test can end the store's work.
func (s *Store) point(name string) error {
	if s.cfg.Fail == nil {
		return nil
	}
	return s.cfg.Fail(name)
}

// List returns a page of artifacts, by bucket and name; versions of one name are together, the newest first.
//
// Errors: NotFound (the bucket), InvalidArgument (the cursor).
func (s *Store) List(ctx context.Context, q holt.ArtifactQuery) (page holt.Page[holt.Artifact], err error) {
	var after cursor
	if q.Cursor != "" {
		if err := json.Unmarshal([]byte(q.Cursor), &after); err != nil {
			return page, holt.Errorf(holt.InvalidArgument, "invalid cursor %q", holt.Clip(q.Cursor, 80)).WithHint("use next of the page before")
		}
	}
	var list []row
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		var in bucket
		if q.Bucket != "" {
			if in, err = findBucket(ctx, tx, q.Bucket); err != nil {
				return err
			}
		}
		condition, args := listed(q, in.id, holt.Confined(ctx), after)
		list, err = rows(tx, condition, args...)
		return err
	})
	page.Items = []holt.Artifact{}
	for i, a := range list {
		if i == q.Most() {
			last := list[i-1]
			next, _ := json.Marshal(cursor{last.bucketID, last.Name, last.version})
			page.Next = string(next)
			break
		}
		page.Items = append(page.Items, a.shown(ctx))
	}
	return page, err
}

// listed is SQL for a page, which the indexes answer without sorting. bucket is an id, 0: any, of a tenant, "": any.
func listed(q holt.ArtifactQuery, bucket int64, tenant string, after cursor) (condition string, args []any) {
	condition = `WHERE ` + visible
	and := func(more string, values ...any) { condition, args = condition+` AND `+more, append(args, values...) }
	if bucket != 0 {
		and(`a.bucket = ?`, bucket)
	} else if tenant != "" {
		and(`b.tenant = ?`, tenant)
	}
	if q.Prefix != "" {
		end := []byte(q.Prefix)
		end[len(end)-1]++ // never the highest byte, which UTF-8 does not have
		and(`a.name >= ? AND a.name < ?`, q.Prefix, string(end))
	}
	if !q.Versions {
		and(`a.newest`)
	}
	if q.Computer != "" {
		and(`(a.computer = ? OR a.called = ?)`, q.Computer, q.Computer)
	}
	if after.Name != "" {
		and(`(a.bucket, a.name) >= (?, ?) AND NOT (a.bucket = ? AND a.name = ? AND a.version >= ?)`, after.Bucket, after.Name, after.Bucket, after.Name, after.Version)
	}
	return condition + ` ORDER BY a.bucket, a.name, a.version DESC LIMIT ?`, append(args, q.Most()+1)
}

// cursor is the last artifact of a page.
type cursor struct {
	Bucket  int64  `json:"b"`
	Name    string `json:"n"`
	Version int64  `json:"v"`
}

// Get returns an artifact by id, or by BUCKET/NAME.
func (s *Store) Get(ctx context.Context, ref string) (holt.Artifact, error) {
	a, err := s.find(ctx, ref)
	return a.shown(ctx), err
}

// shown is an artifact as the caller may see it: a token for single objects does not see the command lines of runs.
func (a row) shown(ctx context.Context) holt.Artifact {
	if actor, _ := holt.ActorOf(ctx); actor.Token != "" && actor.Rights.Narrow() {
		a.Origin.Command, a.Origin.Argv = "", nil
	}
	return a.Artifact
}

// Read writes n bytes of an artifact from offset off to w; n < 0: up to its end.
func (s *Store) Read(ctx context.Context, ref string, off, n int64, w io.Writer) error {
	a, err := s.find(ctx, ref)
	if err != nil {
		return err
	}
	if off < 0 || off > a.Size {
		return holt.Errorf(holt.InvalidArgument, "invalid offset %d: the artifact has %s", off, holt.CountOf(int(a.Size), "byte"))
	}
	if n < 0 || n > a.Size-off {
		n = a.Size - off
	}
	if a.parts > 0 {
		return s.readParts(ctx, a, off, n, w)
	}
	if a.State == holt.ArtifactStoring {
		out := &counted{w: w}
		err := s.cfg.Workspaces.Read(ctx, holt.AtCheckpoint(string(a.held), string(a.ID)), a.source, off, n, out)
		if err == nil || out.failed {
			return err
		}
		// It may have been stored meanwhile, and its checkpoint deleted.
		now, lost := s.find(ctx, string(a.ID))
		if lost != nil || now.State == holt.ArtifactStoring {
			return err
		}
		a, off, n = now, off+out.n, n-out.n
	}
	return s.readStored(ctx, a, off, n, w)
}

func (s *Store) readRow(ctx context.Context, a row, off, n int64, w io.Writer) error {
	var bytes []byte
	err := s.cfg.DB.Read(ctx, func(tx *db.Tx) error {
		return tx.Query(`SELECT body FROM artifact WHERE seq = ?`, []any{a.seq}, func(r *db.Row) error { bytes = r.Bytes(0); return nil })
	})
	if err == nil && int64(len(bytes)) != a.Size {
		err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", a.ID)
	}
	if err == nil {
		_, err = w.Write(bytes[off : off+n])
	}
	return err
}

// counted counts what is written.
type counted struct {
	w      io.Writer
	n      int64
	failed bool
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.failed = err != nil
	return n, err
}

// Update changes tags, retention and hold of an artifact.
//
// Errors: NotFound, InvalidArgument (tags), Conflict (a retention that would be shorter).
func (s *Store) Update(ctx context.Context, ref string, change holt.ArtifactChange, key string) (holt.Artifact, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Artifact]{
		Key: key, Method: "artifact.update", Request: []any{ref, change},
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Artifact, error) {
			return s.update(ctx, ref, change, claim)
		},
		Again: func(ctx context.Context, id string) (holt.Artifact, error) { return s.update(ctx, id, change, nil) },
	})
}

func (s *Store) update(ctx context.Context, ref string, change holt.ArtifactChange, claim *idempotency.Claim) (out holt.Artifact, err error) {
	was, err := s.find(ctx, ref)
	if err != nil {
		return out, err
	}
	err = s.write(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(was.ID)); err != nil {
			return err
		}
		list, err := rows(tx, `WHERE a.seq = ? AND `+visible, was.seq)
		if err == nil && len(list) == 0 {
			err = holt.Errorf(holt.NotFound, "the artifact %s was deleted", was.ID)
		}
		if err != nil {
			return err
		}
		a := list[0]
		if a.Tags == nil {
			a.Tags = map[string]string{}
		}
		for k, v := range change.Tags {
			delete(a.Tags, k)
			if v != nil {
				a.Tags[k] = *v
			}
		}
		if err := checkTags(a.Tags); err != nil {
			return err
		}
		if change.RetainMS != nil {
			if err := checkRetention(*change.RetainMS); err != nil {
				return err
			}
			until := s.cfg.Now().Add(time.Duration(*change.RetainMS) * time.Millisecond).UTC()
			if actor, _ := holt.ActorOf(ctx); a.RetainUntil != nil && until.Before(*a.RetainUntil) && !actor.Admin() {
				return holt.Errorf(holt.Conflict, "the artifact %s/%s is retained until %s", a.Bucket, a.Name, a.RetainUntil.Format(time.RFC3339)).
					WithHint("only an admin can shorten a retention")
			}
			a.RetainUntil = &until
		}
		if change.Hold != nil {
			a.Hold = *change.Hold
		}
		out = a.shown(ctx)
		defer s.applyRules()
		return tx.Exec(`UPDATE artifact SET tags = ?, retain = ?, hold = ? WHERE seq = ?`, mustJSON(a.Tags), nanos(a.RetainUntil), a.Hold, a.seq)
	})
	return out, err
}

func nanos(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.UnixNano()
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and structs of text
	}
	return string(b)
}

func checkTags(tags map[string]string) error {
	bytes := 0
	for k, v := range tags {
		if bytes += len(k) + len(v); k == "" || strings.ContainsRune(k, '=') {
			return holt.Errorf(holt.InvalidArgument, "invalid name %q of a tag", holt.Clip(k, 80)).WithHint("use a name without =")
		}
	}
	if bytes > holt.MostArtifactTags {
		return holt.Errorf(holt.InvalidArgument, "the tags have %d bytes", bytes).WithHint("the tags of an artifact have at most %d bytes, names and values together", holt.MostArtifactTags)
	}
	return nil
}

// Delete removes an artifact: of BUCKET/NAME the newest version, so that the one before is the newest.
//
// Errors: NotFound, Conflict (it is retained or on hold).
func (s *Store) Delete(ctx context.Context, ref, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "artifact.delete", Request: ref, Removes: true,
		Act: func(ctx context.Context, claim *idempotency.Claim) (none struct{}, err error) {
			return none, s.delete(ctx, ref, claim)
		},
		Again: func(ctx context.Context, id string) (none struct{}, err error) {
			if err = s.delete(ctx, id, nil); holt.CodeOf(err) == holt.NotFound {
				err = nil
			}
			return none, err
		},
	})
	return err
}

func (s *Store) delete(ctx context.Context, ref string, claim *idempotency.Claim) error {
	a, err := s.find(ctx, ref)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(tx *db.Tx) error {
		if err := claim.Bind(tx, string(a.ID)); err != nil {
			return err
		}
		list, err := rows(tx, `WHERE a.seq = ? AND `+visible, a.seq)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := s.kept(list[0]); err != nil {
			return err
		}
		return remove(tx, list[0])
	})
	if err != nil {
		return err
	}
	if err := s.purge(context.WithoutCancel(ctx), a); err != nil {
		s.cfg.Log.WarnContext(ctx, "the bytes of a deleted artifact are not freed yet", "artifact", a.ID, "again_in", again, "err", err)
	}
	return nil
}

// purge removes the bytes of an artifact in state deleting, and then its row.
func (s *Store) purge(ctx context.Context, a row) error {
	s.mu.Lock()
	at := s.storing[a.ID]
	s.mu.Unlock()
	if at != nil { // it ends soon
		at.cancel()
		<-at.done
	}
	s.endSends(a.ID)
	if a.held != "" {
		if err := s.cfg.Workspaces.Release(ctx, a.held, string(a.ID)); err != nil {
			return err
		}
	}
	if !a.inline {
		if err := s.cfg.Archive.Drop(ctx, string(a.ID)); err != nil {
			return err
		}
	}
	return s.write(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(`DELETE FROM artifact_part WHERE artifact = ?`, a.seq); err != nil {
			return err
		}
		return tx.Exec(`DELETE FROM artifact WHERE seq = ? AND state = 'deleting'`, a.seq)
	})
}

// kept returns Conflict for an artifact that must not be deleted.
func (s *Store) kept(a row) error {
	switch {
	case a.Hold:
		return holt.Errorf(holt.Conflict, "the artifact %s/%s is on hold", a.Bucket, a.Name).WithHint("remove the hold first: holt artifact hold %s --off", a.ID)
	case a.RetainUntil != nil && s.cfg.Now().Before(*a.RetainUntil):
		return holt.Errorf(holt.Conflict, "the artifact %s/%s is retained until %s", a.Bucket, a.Name, a.RetainUntil.Format(time.RFC3339)).WithHint("delete it after that time")
	}
	return nil
}

// mostQueried is the number of a tenant's newest artifacts that its SQL sees.
const mostQueried = 50_000

// Query runs SQL on the table artifacts, which has the columns [holt.ArtifactColumns]: the tenant's newest 50,000.
//
// Errors: InvalidArgument (the SQL), Timeout, TooMany (too many queries of the tenant wait).
func (s *Store) Query(ctx context.Context, q holt.TableQuery) (holt.QueryResult, error) {
	limits, err := db.LimitsOf(q, "artifacts")
	if err != nil {
		return holt.QueryResult{}, err
	}
	end, err := s.queries.Take(ctx)
	if err != nil {
		return holt.QueryResult{}, err
	}
	defer end()
	find := func(*db.Tx, []string) (db.Rows, error) {
		all, err := s.rows(ctx, `WHERE b.tenant = ? AND `+visible+` ORDER BY a.seq DESC LIMIT ?`, holt.TenantOf(ctx), mostQueried)
		return asked(all), err
	}
	return db.Source{Tables: []db.Table{{Name: "artifacts", Columns: holt.ArtifactColumns, Find: find}}}.Query(ctx, q.SQL, limits)
}

// asked is artifacts as a table of a query.
type asked []row

func (a asked) Len() int { return len(a) }

func (a asked) Value(i, column int) any {
	r, o, w := a[i], a[i].Origin, a[i].Origin.Writer
	if w == nil {
		w = &holt.Writer{}
	}
	retain, command := any(nil), string(o.Command)
	if r.RetainUntil != nil {
		retain = r.RetainUntil.Format(sqlTime)
	}
	if command == "" {
		for n, arg := range o.Argv {
			if n > 0 {
				command += " "
			}
			command += string(arg)
		}
	}
	all := []any{string(r.ID), r.Bucket, r.Name, r.Newest, string(r.State), r.Size, r.SHA256, r.MediaType, r.CreatedAt.Format(sqlTime), retain, r.Hold, mustJSON(r.Tags),
		o.Computer, string(o.ComputerID), o.Workspace, string(o.WorkspaceID), string(o.Path), cmp.Or(w.Run, string(o.Run)), w.Name, w.Kind, command, o.By, string(o.Job)}
	if column < len(all) {
		return all[column]
	}
	return nil
}

// sqlTime is how SQL has times: as SQLite's functions do.
const sqlTime = "2006-01-02 15:04:05.000"
