package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneSnapshot names a snapshot in a path.
type OneSnapshot struct {
	Snapshot string `path:"snapshot" doc:"id, a name that only one snapshot has, or COMPUTER@SNAPSHOT"`
}

const snapshotTag = "snapshots"

func (s *Server) snapshots(api huma.API) {
	s.takeSnapshots(api)
	s.keptSnapshots(api)
	s.restoreSnapshot(api)
	s.diffComputers(api)
}

// diffComputers registers the comparison of computers and snapshots.
func (s *Server) diffComputers(api huma.API) {
	op := describe(http.MethodGet, "/v1/diff", "diffComputers", snapshotTag, "Say what must change in one computer or snapshot to make it another")
	op.Description = "Files of the workspaces; files of the root disk where people put what no package has, by size, time, mode and owner; packages (of dpkg), processes and listening ports. " +
		"All but the workspace is asked of a computer's guest now; of a snapshot it was asked before it was taken, of one of a fork just after. A side that has nothing to say of that says why."
	register(api, op, func(ctx context.Context, in *struct {
		From string `query:"from" required:"true" maxLength:"128" doc:"a computer, as it is now, or a snapshot, by name or id, or COMPUTER@SNAPSHOT"`
		To   string `query:"to" required:"true" maxLength:"128" doc:"likewise"`
	}) (*reply[holt.ComputerDiff], error) {
		for _, ref := range []string{in.From, in.To} {
			if _, err := parseSnapshot(ref); err == nil {
				continue
			}
			if _, err := parseRef(ref); err != nil {
				return nil, err
			}
		}
		d, err := s.opt.Nouns.Snapshots.Diff(ctx, in.From, in.To)
		return &reply[holt.ComputerDiff]{d}, err
	})
}

// takeSnapshots registers the verbs of computers that keep their memory.
func (s *Server) takeSnapshots(api huma.API) {
	nouns := s.opt.Nouns.Computers
	op := describe(http.MethodPost, "/v1/computers/{computer}/snapshot", "snapshotComputer", snapshotTag, "Take a snapshot of a running computer, which goes on")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Memory, root disk and workspace of the same instant, under one id. It stays until it is deleted."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.SnapshotSpec
	}) (*reply[holt.Snapshot], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		m, err := nouns.Snapshot(ctx, ref, in.Body, in.Key)
		return &reply[holt.Snapshot]{m}, err
	})

	op = describe(http.MethodPost, "/v1/computers/{computer}/fork", "forkComputer", snapshotTag, "Fork a computer: running as it is now, paused as it was, or one of its snapshots")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Each fork goes on with everything that ran, in a root disk and a workspace of its own, under an identity of its own. " +
		"What could not be made says why, beside what could; nothing of it is left. The computer goes on."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.ComputerForkSpec
	}) (*reply[holt.ForkedComputers], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		forked, err := nouns.Fork(ctx, ref, in.Body, in.Key)
		return &reply[holt.ForkedComputers]{forked}, err
	})
	s.life(api, "pause", "Pause a running computer: its memory and both disks stay, its machine ends", nouns.Pause)
	s.life(api, "resume", "Let a paused computer go on where it was; a running one is left as it is", nouns.Resume)
}

// keptSnapshots registers the snapshots there are.
func (s *Server) keptSnapshots(api huma.API) {
	nouns := s.opt.Nouns.Snapshots
	register(api, describe(http.MethodGet, "/v1/snapshots", "listSnapshots", snapshotTag, "List snapshots, oldest first"),
		func(ctx context.Context, in *struct {
			Paging
			Computer string `query:"computer" maxLength:"64" doc:"only those of this computer, by name or id"`
		}) (*reply[holt.Page[holt.Snapshot]], error) {
			if in.Computer != "" {
				if _, err := parseRef(in.Computer); err != nil {
					return nil, err
				}
			}
			all, err := nouns.List(ctx, in.Computer)
			return pageOf(all, func(m holt.Snapshot) string {
				return m.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + string(m.ID)
			}, in.Paging), err
		})

	register(api, describe(http.MethodGet, "/v1/snapshots/{snapshot}", "getSnapshot", snapshotTag, "Get a snapshot"),
		func(ctx context.Context, in *OneSnapshot) (*reply[holt.Snapshot], error) {
			ref, err := parseSnapshot(in.Snapshot)
			if err != nil {
				return nil, err
			}
			m, err := nouns.Get(ctx, ref)
			return &reply[holt.Snapshot]{m}, err
		})

	op := describe(http.MethodDelete, "/v1/snapshots/{snapshot}", "deleteSnapshot", snapshotTag, "Delete a snapshot")
	op.Description = "Its forks go on: what they share with it stays as long as they need it. A workspace that a restore left goes with the last snapshot in it. " +
		"Conflict while its computer is paused at it."
	register(api, op, func(ctx context.Context, in *struct {
		OneSnapshot
		Keyed
	}) (*reply[holt.SnapshotFreed], error) {
		ref, err := parseSnapshot(in.Snapshot)
		if err != nil {
			return nil, err
		}
		freed, err := nouns.Delete(ctx, ref, in.Key)
		return &reply[holt.SnapshotFreed]{freed}, err
	})

	op = describe(http.MethodPost, "/v1/snapshots/{snapshot}/fork", "forkSnapshot", snapshotTag, "Fork a snapshot")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		OneSnapshot
		Keyed
		Body holt.ComputerForkSpec
	}) (*reply[holt.ForkedComputers], error) {
		ref, err := parseSnapshot(in.Snapshot)
		if err != nil {
			return nil, err
		}
		if in.Body.At != "" {
			return nil, holt.Errorf(holt.InvalidArgument, "the snapshot to fork is named twice").WithHint("leave at out")
		}
		forked, err := nouns.Fork(ctx, ref, in.Body, in.Key)
		return &reply[holt.ForkedComputers]{forked}, err
	})
}

// restoreSnapshot registers the way back.
func (s *Server) restoreSnapshot(api huma.API) {
	op := describe(http.MethodPost, "/v1/snapshots/{snapshot}/restore", "restoreSnapshot", snapshotTag, "Take a computer back to one of its snapshots")
	op.Description = "Memory, root disk, workspace and terminals are those of then, under the computer's own id, name and identity, and it runs (of a snapshot without memory it is " +
		"stopped). What it is until now becomes a snapshot first: to restore that undoes this. Runs and terminals that began since end with it, and go on with it; attachments and connections to elsewhere " +
		"end. The workspace of then takes the name of the present one, which is kept, under another name, with the snapshots in it. One that fails leaves the computer as it " +
		"was; one that ran and cannot go on either stays paused at the snapshot of its present. For files alone: restoreWorkspace. Conflict while the workspace is mounted on the host."
	register(api, op, func(ctx context.Context, in *struct {
		OneSnapshot
		Keyed
		Body holt.SnapshotRestoreSpec
	}) (*reply[holt.RestoredComputer], error) {
		ref, err := parseSnapshot(in.Snapshot)
		if err != nil {
			return nil, err
		}
		restored, err := s.opt.Nouns.Snapshots.Restore(ctx, ref, in.Body, in.Key)
		return &reply[holt.RestoredComputer]{restored}, err
	})
}

// parseSnapshot checks a snapshot's name or id, or COMPUTER@SNAPSHOT, at the door.
func parseSnapshot(s string) (string, error) {
	one := s
	if computer, at := holt.CutCheckpoint(s); at != "" {
		if _, err := parseRef(computer); err != nil {
			return "", err
		}
		one = at
	}
	if _, err := holt.ParseSnapshotID(one); err == nil {
		return s, nil
	}
	_, err := holt.ParseName(one)
	return s, err
}
