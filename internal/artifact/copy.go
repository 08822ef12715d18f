package artifact

import (
	"context"
	"io"
	"path"
	"strings"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
	"holt/internal/workspace"
)

// leastShared is from how many bytes on a copy shares those of the artifact: each share is a change of the archive.
const leastShared = 1 << 20

// Copy writes an artifact to a file of a workspace or a computer. A large file of a workspace shares the artifact's bytes in the
// archive: they are not copied.
//
// Errors: NotFound (the artifact, or the directory), InvalidArgument (the path is a directory), OutOfSpace (the quota of the workspace).
func (s *Store) Copy(ctx context.Context, ref string, spec holt.ArtifactCopy, key string) (holt.FileInfo, error) {
	return idempotency.Once(ctx, s.cfg.Keys, idempotency.Call[holt.FileInfo]{
		Key: key, Method: "artifact.copy", Request: []any{ref, spec},
		Act: func(ctx context.Context, _ *idempotency.Claim) (holt.FileInfo, error) { return s.copy(ctx, ref, spec) },
	})
}

func (s *Store) copy(ctx context.Context, ref string, spec holt.ArtifactCopy) (holt.FileInfo, error) {
	a, err := s.find(ctx, ref)
	if err == nil && a.State == holt.ArtifactStoring { // its bytes are not in the archive yet
		if err = s.finish(ctx, a.ID); err == nil {
			a, err = s.find(ctx, string(a.ID))
		}
	}
	if err != nil {
		return holt.FileInfo{}, err
	}
	if a.Tree {
		return holt.FileInfo{}, holt.Errorf(holt.InvalidArgument, "the artifact %s/%s is a directory", a.Bucket, a.Name).WithHint("holt computer cp artifact:%s COMPUTER:PATH unpacks it", a.ID)
	}
	to, file, err := s.target(ctx, spec.Computer, spec.Workspace, string(spec.Path))
	if err != nil {
		return holt.FileInfo{}, err
	}
	write := holt.WriteSpec{Mode: spec.Mode, User: spec.User, Parents: spec.Parents}
	content := func() io.ReadCloser {
		r, w := io.Pipe()
		go func() { w.CloseWithError(s.Read(ctx, string(a.ID), 0, -1, w)) }()
		return r
	}
	if to == "" {
		r := content()
		defer r.Close()
		return s.cfg.Computers.Write(ctx, spec.Computer, file, write, r)
	}
	var info holt.FileInfo
	sources, err := s.sources(ctx, a)
	if err != nil {
		return holt.FileInfo{}, err
	}
	if len(sources) == 0 {
		r := content()
		defer r.Close()
		info, err = s.cfg.Workspaces.Write(ctx, to, file, write, r)
	} else {
		info, err = s.cfg.Workspaces.Adopt(ctx, to, file, write, string(a.ID), sources)
	}
	if err == nil && spec.Computer != "" {
		info.Path = holt.OSString(path.Join(workspace.Home, string(info.Path)))
	}
	return info, err
}

// sources are the parts of the archive that have the artifact's bytes; none: they cannot be shared.
func (s *Store) sources(ctx context.Context, a row) (list []workspace.Source, err error) {
	if a.Size < leastShared {
		return nil, nil
	}
	if a.parts > 0 {
		var parts []part
		err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error { parts, err = partsOf(tx, `artifact = ? ORDER BY n`, a.seq); return err })
		for _, p := range parts {
			if p.Size > workspace.MostAdopted {
				return nil, err
			}
			if p.Size > 0 {
				list = append(list, workspace.Source{Part: p.name, Bytes: p.Size})
			}
		}
		return list, err
	}
	for off := int64(0); off < a.Size; off += mostPart {
		list = append(list, workspace.Source{Part: partOf(off / mostPart), Bytes: min(mostPart, a.Size-off)})
	}
	return list, nil
}

// target returns the workspace that has a file, and the file's path there; "" and the path in the computer if none has it.
func (s *Store) target(ctx context.Context, computer, ws, file string) (id, at string, err error) {
	if (computer == "") == (ws == "") {
		return "", "", holt.Errorf(holt.InvalidArgument, "give either a computer or a workspace").WithHint("name the one that has the file")
	}
	if file = path.Clean(file); !path.IsAbs(file) {
		return "", "", holt.Errorf(holt.InvalidArgument, "the path %q is not absolute", holt.Clip(file, 80)).WithHint("in a computer, the workspace is at %s", workspace.Home)
	}
	if ws != "" {
		w, err := s.cfg.Workspaces.Get(ctx, ws)
		return string(w.ID), file, err
	}
	c, err := s.cfg.Computers.Get(ctx, computer)
	if err != nil {
		return "", "", err
	}
	at, inHome := strings.CutPrefix(file, workspace.Home+"/")
	if !inHome {
		return "", file, nil
	}
	err = s.cfg.DB.Read(ctx, func(tx *db.Tx) error { id, err = workspaceOf(tx, c.ID); return err })
	return id, "/" + at, err
}
