package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holt"
)

// OneMoment names a moment in a path.
type OneMoment struct {
	Moment string `path:"moment" doc:"id, a name that only one moment has, or COMPUTER@MOMENT"`
}

const momentTag = "moments"

func (s *Server) moments(api huma.API) {
	s.takeMoments(api)
	s.keptMoments(api)
	s.restoreMoment(api)
	s.diffComputers(api)
}

// diffComputers registers the comparison of computers and moments.
func (s *Server) diffComputers(api huma.API) {
	op := describe(http.MethodGet, "/v1/diff", "diffComputers", momentTag, "Say what must change in one computer or moment to make it another")
	op.Description = "Files of the workspaces; files of the root disk where people put what no package has, by size, time, mode and owner; packages (of dpkg), processes and listening ports. " +
		"All but the workspace is asked of a computer's guest now; of a moment it was asked before it was taken, of one of a fork just after. A side that has nothing to say of that says why."
	register(api, op, func(ctx context.Context, in *struct {
		From string `query:"from" required:"true" maxLength:"128" doc:"a computer, as it is now, or a moment, by name or id, or COMPUTER@MOMENT"`
		To   string `query:"to" required:"true" maxLength:"128" doc:"likewise"`
	}) (*reply[holt.ComputerDiff], error) {
		for _, ref := range []string{in.From, in.To} {
			if _, err := parseMoment(ref); err == nil {
				continue
			}
			if _, err := parseRef(ref); err != nil {
				return nil, err
			}
		}
		d, err := s.opt.Nouns.Moments.Diff(ctx, in.From, in.To)
		return &reply[holt.ComputerDiff]{d}, err
	})
}

// takeMoments registers the verbs of computers that keep their memory.
func (s *Server) takeMoments(api huma.API) {
	nouns := s.opt.Nouns.Computers
	op := describe(http.MethodPost, "/v1/computers/{computer}/snapshot", "snapshotComputer", momentTag, "Take a moment of a running computer, which goes on")
	op.DefaultStatus = http.StatusCreated
	op.Description = "Memory, root disk and workspace of the same instant, under one id. It stays until it is deleted."
	register(api, op, func(ctx context.Context, in *struct {
		OneComputer
		Keyed
		Body holt.SnapshotSpec
	}) (*reply[holt.Moment], error) {
		ref, err := parseRef(in.Computer)
		if err != nil {
			return nil, err
		}
		m, err := nouns.Snapshot(ctx, ref, in.Body, in.Key)
		return &reply[holt.Moment]{m}, err
	})

	op = describe(http.MethodPost, "/v1/computers/{computer}/fork", "forkComputer", momentTag, "Fork a computer: running as it is now, paused as it was, or one of its moments")
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

// keptMoments registers the moments there are.
func (s *Server) keptMoments(api huma.API) {
	nouns := s.opt.Nouns.Moments
	register(api, describe(http.MethodGet, "/v1/moments", "listMoments", momentTag, "List moments, oldest first"),
		func(ctx context.Context, in *struct {
			Paging
			Computer string `query:"computer" maxLength:"64" doc:"only those of this computer, by name or id"`
		}) (*reply[holt.Page[holt.Moment]], error) {
			if in.Computer != "" {
				if _, err := parseRef(in.Computer); err != nil {
					return nil, err
				}
			}
			all, err := nouns.List(ctx, in.Computer)
			return pageOf(all, func(m holt.Moment) string {
				return m.CreatedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + string(m.ID)
			}, in.Paging), err
		})

	register(api, describe(http.MethodGet, "/v1/moments/{moment}", "getMoment", momentTag, "Get a moment"),
		func(ctx context.Context, in *OneMoment) (*reply[holt.Moment], error) {
			ref, err := parseMoment(in.Moment)
			if err != nil {
				return nil, err
			}
			m, err := nouns.Get(ctx, ref)
			return &reply[holt.Moment]{m}, err
		})

	op := describe(http.MethodDelete, "/v1/moments/{moment}", "deleteMoment", momentTag, "Delete a moment")
	op.Description = "Its forks go on: what they share with it stays as long as they need it. A workspace that a restore left goes with the last moment in it. " +
		"Conflict while its computer is paused at it."
	register(api, op, func(ctx context.Context, in *struct {
		OneMoment
		Keyed
	}) (*reply[holt.MomentFreed], error) {
		ref, err := parseMoment(in.Moment)
		if err != nil {
			return nil, err
		}
		freed, err := nouns.Delete(ctx, ref, in.Key)
		return &reply[holt.MomentFreed]{freed}, err
	})

	op = describe(http.MethodPost, "/v1/moments/{moment}/fork", "forkMoment", momentTag, "Fork a moment")
	op.DefaultStatus = http.StatusCreated
	register(api, op, func(ctx context.Context, in *struct {
		OneMoment
		Keyed
		Body holt.ComputerForkSpec
	}) (*reply[holt.ForkedComputers], error) {
		ref, err := parseMoment(in.Moment)
		if err != nil {
			return nil, err
		}
		if in.Body.At != "" {
			return nil, holt.Errorf(holt.InvalidArgument, "the moment to fork is named twice").WithHint("leave at out")
		}
		forked, err := nouns.Fork(ctx, ref, in.Body, in.Key)
		return &reply[holt.ForkedComputers]{forked}, err
	})
}

// restoreMoment registers the way back.
func (s *Server) restoreMoment(api huma.API) {
	op := describe(http.MethodPost, "/v1/moments/{moment}/restore", "restoreMoment", momentTag, "Take a computer back to one of its moments")
	op.Description = "Memory, root disk, workspace and terminals are those of then, under the computer's own id, name and identity, and it runs (of a moment without memory it is " +
		"stopped). What it is until now becomes a moment first: to restore that undoes this. Runs and terminals that began since end with it, and go on with it; attachments and connections to elsewhere " +
		"end. The workspace of then takes the name of the present one, which is kept, under another name, with the moments in it. One that fails leaves the computer as it " +
		"was; one that ran and cannot go on either stays paused at the moment of its present. For files alone: restoreWorkspace. Conflict while the workspace is mounted on the host."
	register(api, op, func(ctx context.Context, in *struct {
		OneMoment
		Keyed
		Body holt.MomentRestoreSpec
	}) (*reply[holt.RestoredComputer], error) {
		ref, err := parseMoment(in.Moment)
		if err != nil {
			return nil, err
		}
		restored, err := s.opt.Nouns.Moments.Restore(ctx, ref, in.Body, in.Key)
		return &reply[holt.RestoredComputer]{restored}, err
	})
}

// parseMoment checks a moment's name or id, or COMPUTER@MOMENT, at the door.
func parseMoment(s string) (string, error) {
	one := s
	if computer, at := holt.CutCheckpoint(s); at != "" {
		if _, err := parseRef(computer); err != nil {
			return "", err
		}
		one = at
	}
	if _, err := holt.ParseMomentID(one); err == nil {
		return s, nil
	}
	_, err := holt.ParseName(one)
	return s, err
}
