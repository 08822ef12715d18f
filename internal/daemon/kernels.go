package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"holt"
	"holt/internal/guest/mount"
	"holt/internal/workspace"
)

// kernels are the ways to those that have workspaces mounted: one for each
// open workspace, since one kernel at most believes what it was told. Its lock
// guards the set only.
type kernels struct {
	log *slog.Logger

	mu  sync.Mutex
	set map[*workspace.Workspace]*mount.Notifier
}

// of returns the way to the kernel that has ws mounted, now or later.
func (k *kernels) of(ws *workspace.Workspace) *mount.Notifier {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.set[ws] == nil {
		k.set[ws] = &mount.Notifier{}
	}
	return k.set[ws]
}

// drop forgets a workspace that is closed.
func (k *kernels) drop(ws *workspace.Workspace) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.set, ws)
}

// noticeWait is how long a change waits for a kernel that takes none, when as
// many wait as may.
const noticeWait = 10 * time.Second

// watch has the kernel that has ws mounted told of restores and undos, as long
// as ws is open.
func (k *kernels) watch(ws *workspace.Workspace) {
	changed := k.changed
	ws.OnStale(func(stale []workspace.Stale) {
		tell := changed(ws)
		for _, s := range stale {
			tell(s.Ino, s.Name)
		}
	})
}

// changed returns what tells the kernel that has ws mounted of a change that
// came another way. One that takes nothing for long keeps what it believes,
// with a line in the log; a guest's learns it when its files are served anew.
func (k *kernels) changed(ws *workspace.Workspace) func(workspace.Ino, string) {
	n, lost := k.of(ws), false
	return func(ino workspace.Ino, name string) {
		if lost || len(ws.Epochs()) == 0 { // a kernel that comes later knows nothing yet
			return
		}
		c := mount.Change{Ino: ino, Name: name}
		err := n.Notify(c)
		if holt.CodeOf(err) == holt.TooMany {
			ctx, cancel := context.WithTimeout(context.Background(), noticeWait)
			defer cancel()
			_ = n.Wait(ctx) // then there is room, or there is not
			err = n.Notify(c)
		}
		if lost = err != nil; lost {
			k.log.Error("a mount was not told of changes made beside it; mount it anew", "err", err)
		}
	}
}

// settle returns when the kernel that has ws mounted was told of everything so
// far, or soon after: one that does not listen must not hold up the caller.
func (k *kernels) settle(ctx context.Context, ws *workspace.Workspace) {
	if len(ws.Epochs()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	n := k.of(ws)
	if err := n.Wait(ctx); err != nil {
		k.log.WarnContext(ctx, "a mount is not told yet of a change made beside it", "err", err)
		return
	}
	ws.MarkNotified(n.Told)
}

const settleWait = 2 * time.Second
