package computer

import (
	"context"
	"errors"
	"strings"

	"holt"
	"holt/internal/workspace"
)

// offline reads the workspace of a stopped computer without starting it. It returns false if a
// guest has to be asked, because the path, or a symbolic link on it, is outside the workspace.
func (f *Files) offline(ctx context.Context, computer, path string, read func(workspace.Files) error) (bool, error) {
	if path != workspace.Home && !strings.HasPrefix(path, workspace.Home+"/") {
		return false, nil
	}
	r, err := f.table.find(ctx, computer)
	if err != nil || r.State != holt.ComputerStopped {
		return false, err
	}
	ws, release, err := f.cfg.Workspaces.View(ctx, r.workspaceID)
	if err != nil {
		return false, err
	}
	defer release()
	err = read(workspace.Files{Tree: ws.Tree(), Under: workspace.Home})
	if errors.Is(err, workspace.ErrEscapes) {
		return false, nil
	}
	return true, err
}
