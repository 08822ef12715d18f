package access

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holt"
	"holt/internal/store/journal"
)

// The secret of the first token is in a file of the data directory. The file has the name tokenNew until the token
// is stored. If the daemon is killed before it renames the file, the next daemon renames it if the secret is valid, and
// otherwise removes it and makes another token.
const (
	tokenFile = "token"
	tokenNew  = "token.new"
)

// First makes the first token of a data directory: an admin token, with its secret in a file.
type First struct {
	Tokens *Tokens
	Dir    string
	Fail   func(point string) error // tests: called at each step; may be nil
	Log    *slog.Logger
}

// Make makes the token unless there is an admin token that does not expire, or the file
// exists: then the first token was revoked.
func (f First) Make(ctx context.Context) error {
	if err := f.make(ctx); err != nil {
		return fmt.Errorf("make the first token: %w", err)
	}
	return nil
}

func (f First) make(ctx context.Context) error {
	path, made := filepath.Join(f.Dir, tokenFile), filepath.Join(f.Dir, tokenNew)
	secret, err := os.ReadFile(made)
	if err == nil {
		if _, err = f.Tokens.Check(ctx, strings.TrimSpace(string(secret))); err == nil {
			return f.rename(made, path)
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
	list, err := f.Tokens.List(ctx)
	if err != nil || slices.ContainsFunc(list, func(t holt.Token) bool { return t.Rights.Admin && t.ExpiresAt == nil }) {
		return err
	}
	if err := f.Tokens.CreateFirst(ctx, "admin", func(secret string) error { return f.write(made, secret) }); err != nil {
		return err
	}
	if err := f.point("token.made"); err != nil {
		return err
	}
	return f.rename(made, path)
}

// write syncs the secret to disk, before the token is stored.
func (f First) write(path, secret string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(secret + "\n")
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = journal.OS{}.SyncDir(f.Dir)
	}
	if err == nil {
		err = f.point("token.kept")
	}
	return err
}

func (f First) rename(made, path string) error {
	err := os.Rename(made, path)
	if err == nil {
		err = journal.OS{}.SyncDir(f.Dir)
	}
	if err == nil {
		f.Log.Info("made the first token", "file", path)
	}
	return err
}

// point lets a test fail at a step.
func (f First) point(name string) error {
	if f.Fail == nil {
		return nil
	}
	return f.Fail(name)
}
