package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holt"
	"holt/internal/access"
	"holt/internal/store/journal"
)

// The first token's secret is in a file of the data directory. It is called tokenNew from before the token is
// there until after: whatever the daemon is killed between, the next one finds either a secret that counts, and gives the
// file its name, or one that does not, and makes another.
const (
	tokenFile = "token"
	tokenNew  = "token.new"
)

// openTokens makes the first token, when the daemon is to be reached over TCP and nobody could come that way as an admin.
func (d *Daemon) openTokens(ctx context.Context) error {
	d.tokens = access.New(d.db)
	if !d.cfg.TCP {
		return nil
	}
	if err := d.firstToken(ctx); err != nil {
		return fmt.Errorf("make the first token: %w", err)
	}
	return nil
}

// firstToken makes the token of an admin unless there is one that does not expire, or its file: then one was made and
// revoked since, by somebody who has the socket.
func (d *Daemon) firstToken(ctx context.Context) error {
	path, made := filepath.Join(d.cfg.DataDir, tokenFile), filepath.Join(d.cfg.DataDir, tokenNew)
	secret, err := os.ReadFile(made)
	if err == nil {
		if _, err = d.tokens.Check(ctx, strings.TrimSpace(string(secret))); err == nil {
			return d.nameToken(made, path)
		}
		if holt.CodeOf(err) == holt.Unauthenticated {
			err = os.Remove(made)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list, err := d.tokens.List(ctx)
	if err != nil || slices.ContainsFunc(list, func(t holt.Token) bool { return t.Rights.Admin && t.ExpiresAt == nil }) {
		return err
	}
	if err := d.tokens.CreateFirst(ctx, "admin", func(secret string) error { return d.keepToken(made, secret) }); err != nil {
		return err
	}
	if err := d.point("token.made"); err != nil {
		return err
	}
	return d.nameToken(made, path)
}

// keepToken writes the secret down, so that it outlives power loss, before there is the token.
func (d *Daemon) keepToken(path, secret string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(secret + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = journal.OS{}.SyncDir(d.cfg.DataDir)
	}
	if err == nil {
		err = d.point("token.kept")
	}
	return err
}

func (d *Daemon) nameToken(made, path string) error {
	err := os.Rename(made, path)
	if err == nil {
		err = journal.OS{}.SyncDir(d.cfg.DataDir)
	}
	if err == nil {
		d.log.Info("made the first token", "file", path)
	}
	return err
}

// point is a step at which tests have it fail.
func (d *Daemon) point(name string) error {
	if d.cfg.Fail == nil {
		return nil
	}
	return d.cfg.Fail(name)
}
