package daemon

import (
	"context"
	"io"
	"path/filepath"

	"holt"
	"holt/internal/upload"
)

func (d *Daemon) openUploads(ctx context.Context) (err error) {
	d.uploads, err = upload.Open(ctx, upload.Config{
		DB: d.db, Keys: d.keys, Dir: filepath.Join(d.cfg.DataDir, "uploads"), Log: d.log, Fail: d.cfg.Fail,
		Computers: uploaded{d.computers.Files(), func(ctx context.Context, ref string) (string, error) {
			c, err := d.computers.Get(ctx, ref)
			return string(c.ID), err
		}},
		Workspaces: uploaded{d.workspaces.Files(), func(ctx context.Context, ref string) (string, error) {
			id, _, err := d.workspaces.Find(ctx, ref)
			return string(id), err
		}},
	})
	return err
}

// uploaded are the files that uploads write.
type uploaded struct {
	writer
	known func(ctx context.Context, ref string) (id string, err error)
}

type writer interface {
	Write(ctx context.Context, ref, path string, spec holt.WriteSpec, r io.Reader) (holt.FileInfo, error)
}

func (u uploaded) Known(ctx context.Context, ref string) (string, error) { return u.known(ctx, ref) }
