package daemon

import (
	"context"
	"path/filepath"

	"holt/internal/authz"
	"holt/internal/door/preview"
)

// linkKeyFile is the key of the links to previews, in the data directory.
const linkKeyFile = "preview.key"

func (d *Daemon) openPreviews(context.Context) (err error) {
	d.previews, err = preview.Open(preview.Config{
		DB: d.db, Keys: d.keys, KeyFile: filepath.Join(d.cfg.DataDir, linkKeyFile), Place: d.cfg.Previews, Hosts: d.cfg.Hosts,
		Computers: d.computers, Ports: d.computers.Ports(), Tokens: d.tokens, Log: d.log,
		May: authz.Port(computers{d.computers, d.computers.Memory()}), Record: d.audit.Record, TXT: d.cfg.TXT,
	})
	return err
}

// Previews returns the previews.
func (d *Daemon) Previews() *preview.Store { return d.previews }
