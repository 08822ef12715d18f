package workspaces

import (
	"context"
	"log/slog"
	"sync"

	"holt"
	"holt/internal/guest/mount"
	"holt/internal/workspace"
)

// kernels notify the kernels that have workspaces mounted of changes that did not
// come through them. There is one notifier for each open workspace, since at most
// one kernel caches what it reads of it. The lock guards the set only.
type kernels struct {
	log *slog.Logger

	mu  sync.Mutex
	set map[*workspace.Workspace]*mount.Notifier
}

// of returns the notifier of the kernel that has ws mounted, now or later.
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

// watch notifies the kernel that has ws mounted of restores and undos, as long as
// ws is open.
func (k *kernels) watch(ws *workspace.Workspace) {
	changed := k.changed
	ws.OnStale(func(stale []workspace.Stale) {
		tell := changed(ws)
		for _, s := range stale {
			tell(s.Ino, s.Name)
		}
	})
}

// changed returns a function that notifies the kernel that has ws mounted of one
// change. A kernel that takes no notification in time keeps its cache, and that
// is logged; a guest's kernel gets the change when its files are served again.
func (k *kernels) changed(ws *workspace.Workspace) func(workspace.Ino, string) {
	n, lost := k.of(ws), false
	return func(ino workspace.Ino, name string) {
		if lost || len(ws.Epochs()) == 0 { // a kernel that mounts it later has nothing cached
			return
		}
		c := mount.Change{Ino: ino, Name: name}
		err := n.Notify(c)
		if holt.CodeOf(err) == holt.TooMany {
			ctx, cancel := context.WithTimeout(context.Background(), notifyTimeout)
			defer cancel()
			_ = n.Wait(ctx) // Notify says whether there is room now
			err = n.Notify(c)
		}
		if lost = err != nil; lost {
			k.log.Error("a mount shows stale files, because its kernel takes no notifications; mount it again", "err", err)
		}
	}
}

// settle waits until the kernel that has ws mounted has taken all notifications,
// but not longer than settleTimeout.
func (k *kernels) settle(ctx context.Context, ws *workspace.Workspace) {
	if len(ws.Epochs()) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	n := k.of(ws)
	if err := n.Wait(ctx); err != nil {
		k.log.WarnContext(ctx, "a mount may still show files as they were before a change", "err", err)
		return
	}
	ws.MarkNotified(n.Told)
}
