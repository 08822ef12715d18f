package upload

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"holt"
	"holt/internal/hosterror"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// Config is the configuration of a [Store]. All fields without a default must be set.
type Config struct {
	DB         *db.DB // with [Schema] and [SureSchema]
	Keys       *idempotency.Keys
	Dir        string // has a file for each open upload
	Computers  Files
	Workspaces Files
	Free       func() (int64, error)    // free bytes of the disk with Dir; nil: from statfs
	Now        func() time.Time         // nil: time.Now
	Log        *slog.Logger             // nil: slog.Default
	Fail       func(point string) error // tests: called at each step; an error fails the step
}

// tidyEvery is the interval between removals of expired uploads.
const tidyEvery = 10 * time.Minute

// Store is the set of uploads of one daemon.
type Store struct {
	cfg    Config
	log    *slog.Logger
	table  table
	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
	locks  map[holt.UploadID]*lock
}

// Open continues the uploads of the control database and removes expired ones.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, log: cfg.Log, table: table{cfg.DB}, locks: map[holt.UploadID]*lock{}}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, hosterror.Full(err)
	}
	if err := s.tidy(ctx); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.wg.Go(func() {
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(tidyEvery):
			}
			if err := s.tidy(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log.Error("remove expired uploads", "err", err)
			}
		}
	})
	return s, nil
}

// Close ends the calls in progress and waits for them. The bytes that were received are kept.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// enter begins a call that Close ends and waits for.
func (s *Store) enter(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, holt.Errorf(holt.Unavailable, "the daemon is ending").WithHint("continue when it is back")
	}
	s.wg.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel(); s.wg.Done() }, nil
}

func (s *Store) path(id holt.UploadID) string { return filepath.Join(s.cfg.Dir, string(id)) }

// tidy removes expired uploads, and files without an upload.
func (s *Store) tidy(ctx context.Context) error {
	old, err := s.table.list(ctx, `WHERE touched < ?`, s.cfg.Now().Add(-holt.UploadKept).UnixNano())
	if err != nil {
		return err
	}
	for _, r := range old {
		t, ok := s.tryLock(r.ID)
		if !ok {
			continue // a call appends to it
		}
		err := s.remove(ctx, t)
		t.unlock()
		if err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return hosterror.Full(err)
	}
	for _, e := range entries {
		known, err := s.table.list(ctx, `WHERE id = ? AND file = ''`, e.Name())
		if err != nil {
			return err
		}
		if len(known) == 0 {
			if err := os.Remove(filepath.Join(s.cfg.Dir, e.Name())); err != nil && !os.IsNotExist(err) {
				return hosterror.Full(err)
			}
		}
	}
	return nil
}

// remove deletes an upload. The caller has its lock.
func (s *Store) remove(ctx context.Context, t *lock) error {
	if err := s.table.erase(ctx, t.id); err != nil {
		return err
	}
	t.dropHash()
	if err := os.Remove(s.path(t.id)); err != nil && !os.IsNotExist(err) {
		return hosterror.Full(fmt.Errorf("remove upload: %w", err))
	}
	return nil
}

var sumRE = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkSum returns a SHA-256 in lower case; "" is none.
func checkSum(sum string) (string, error) {
	if sum = strings.ToLower(sum); sum != "" && !sumRE.MatchString(sum) {
		return "", holt.Errorf(holt.InvalidArgument, "invalid SHA-256 %q", holt.Clip(sum, 80)).WithHint("give 64 hexadecimal digits")
	}
	return sum, nil
}

// Create begins an upload.
//
// Errors: InvalidArgument, NotFound (the computer or workspace), OutOfSpace, TooMany.
func (s *Store) Create(ctx context.Context, spec holt.UploadSpec, key string) (holt.Upload, error) {
	var err error
	if spec.SHA256, err = checkSum(spec.SHA256); err != nil {
		return holt.Upload{}, err
	}
	switch {
	case (spec.Computer == "") == (spec.Workspace == ""):
		return holt.Upload{}, holt.Errorf(holt.InvalidArgument, "an upload needs either a computer or a workspace")
	case spec.Size < 0:
		return holt.Upload{}, holt.Errorf(holt.InvalidArgument, "invalid size %d", spec.Size)
	case max(spec.Mode, spec.NewMode) > 0o7777:
		return holt.Upload{}, holt.Errorf(holt.InvalidArgument, "%#o is not a file mode", max(spec.Mode, spec.NewMode)).WithHint("give octal permission bits, at most 07777")
	}
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.Upload]{
		Key: key, Method: "upload.create", Request: spec,
		Act: func(ctx context.Context, claim *idempotency.Claim) (holt.Upload, error) {
			return s.create(ctx, spec, claim)
		},
		Again: func(ctx context.Context, ref string) (holt.Upload, error) { return s.Get(ctx, holt.UploadID(ref)) },
	})
}

func (s *Store) create(ctx context.Context, spec holt.UploadSpec, claim *idempotency.Claim) (holt.Upload, error) {
	files, ref := s.files(&spec)
	var err error
	if *ref, err = files.Known(ctx, *ref); err != nil { // the name can change before the commit
		return holt.Upload{}, err
	}
	now := s.cfg.Now().UTC()
	r := record{tenant: holt.TenantOf(ctx), touched: now}
	most, err := s.declarable(ctx, r.tenant)
	if err != nil {
		return holt.Upload{}, err
	}
	r.ID, r.Spec, r.State, r.CreatedAt, r.ExpiresAt = holt.NewUploadID(), spec, holt.UploadOpen, now, now.Add(holt.UploadKept)
	return r.Upload, s.table.insert(ctx, r, most, claim)
}

// files returns the target of an upload, and the field of spec with its computer or workspace.
func (s *Store) files(spec *holt.UploadSpec) (Files, *string) {
	if spec.Computer != "" {
		return s.cfg.Computers, &spec.Computer
	}
	return s.cfg.Workspaces, &spec.Workspace
}

// find returns an upload of the caller's tenant.
func (s *Store) find(ctx context.Context, id holt.UploadID) (record, error) {
	list, err := s.table.list(ctx, `WHERE id = ?`, id)
	if err != nil {
		return record{}, err
	}
	if in := holt.Confined(ctx); len(list) == 0 || in != "" && list[0].tenant != in {
		return record{}, holt.Errorf(holt.NotFound, "there is no upload %s", id).WithHint("uploads expire %s after their last byte", holt.ShortDuration(holt.UploadKept))
	}
	return s.current(list[0])
}

// current adds the offset and state of an open upload, which are not in the database.
func (s *Store) current(r record) (record, error) {
	if r.State == holt.UploadDone {
		return r, nil
	}
	info, err := os.Stat(s.path(r.ID))
	switch {
	case err == nil:
		if r.Offset = info.Size(); r.sure != unsure {
			r.Offset = min(r.Offset, r.sure)
		}
	case !os.IsNotExist(err):
		return r, hosterror.Full(fmt.Errorf("stat upload: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.locks[r.ID]; t != nil && t.committing {
		r.State = holt.UploadCommitting
	}
	return r, nil
}

// Get returns an upload. It does not interrupt a call that appends to it.
func (s *Store) Get(ctx context.Context, id holt.UploadID) (holt.Upload, error) {
	r, err := s.find(ctx, id)
	return r.Upload, err
}

// List returns the uploads of the caller's tenant, sorted by id.
func (s *Store) List(ctx context.Context) ([]holt.Upload, error) {
	list, err := s.table.list(ctx, `WHERE ?1 = '' OR tenant = ?1 ORDER BY id`, holt.Confined(ctx))
	all := make([]holt.Upload, 0, len(list))
	for _, r := range list {
		if err == nil {
			r, err = s.current(r)
		}
		all = append(all, r.Upload)
	}
	return all, err
}

// Delete removes an open upload, or the record of a committed one.
func (s *Store) Delete(ctx context.Context, id holt.UploadID, key string) error {
	_, err := idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[struct{}]{
		Key: key, Method: "upload.delete", Request: id, Removes: true,
		Act: func(ctx context.Context, _ *idempotency.Claim) (struct{}, error) {
			if _, err := s.find(ctx, id); err != nil {
				return struct{}{}, err
			}
			t, err := s.lock(ctx, id)
			if err != nil {
				return struct{}{}, err
			}
			defer t.unlock()
			return struct{}{}, s.remove(ctx, t)
		},
	})
	return err
}

// open opens the file of an upload, and returns its length.
func (s *Store) open(id holt.UploadID) (*os.File, int64, error) {
	f, err := os.OpenFile(s.path(id), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, hosterror.Full(fmt.Errorf("open upload: %w", err))
	}
	var info fs.FileInfo
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, hosterror.Full(fmt.Errorf("stat upload: %w", err))
	}
	return f, info.Size(), nil
}
