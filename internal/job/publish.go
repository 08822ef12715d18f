package job

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	"holt"
)

// Artifacts is the part of artifacts that jobs publish with.
type Artifacts interface {
	// PublishFor publishes a file. origin is the part of its origin that the caller knows.
	PublishFor(ctx context.Context, origin holt.ArtifactOrigin, spec holt.ArtifactSpec, key string) (holt.Artifact, error)
	// Bucket returns a bucket, or NotFound.
	Bucket(ctx context.Context, name string) (holt.Bucket, error)
}

// checkPublish returns an error if outputs can never be published so.
func (s *Store) checkPublish(ctx context.Context, p *holt.JobPublish) error {
	if p == nil {
		return nil
	}
	if len(p.Paths) > holt.MostJobArtifacts {
		return holt.Errorf(holt.InvalidArgument, "%d paths are to be published", len(p.Paths)).WithHint("name at most %d", holt.MostJobArtifacts)
	}
	for _, file := range p.Paths {
		if file == "" || path.IsAbs(string(file)) || inOutputs(file) != path.Clean(string(file)) {
			return holt.Errorf(holt.InvalidArgument, "%q is not in the job's outputs", holt.Clip(string(file), 80)).WithHint("give a path below the directory with the outputs, such as report.pdf")
		}
	}
	if p.Bucket == "" || p.Bucket == holt.DefaultBucket {
		return nil
	}
	_, err := s.cfg.Artifacts.Bucket(ctx, p.Bucket)
	return err
}

// inOutputs is a path of an output without "." and "..".
func inOutputs(file holt.OSString) string {
	return strings.TrimPrefix(path.Clean("/"+string(file)), "/")
}

// publish publishes the outputs of a command that succeeded. It can be repeated: each output has an idempotency key. ok is false
// if the daemon ends first.
func (w *worker) publish() (ok bool) {
	p := w.r.Spec.Publish
	if p == nil || w.r.Error != nil || w.r.ExitCode != 0 || w.cancelled() {
		return true
	}
	w.r.Artifacts = nil
	err := w.publishAll(w.ctx, *p)
	if w.s.ctx.Err() != nil {
		return false
	}
	if err != nil && !w.cancelled() {
		w.r.Error = holt.AsError(err)
	}
	return true
}

func (w *worker) publishAll(ctx context.Context, p holt.JobPublish) error {
	dir, err := outputsIn(w.r.Spec.Collect)
	if err != nil {
		return err
	}
	if len(p.Paths) == 0 {
		p.Paths, err = w.s.cfg.Workspaces.FilesIn(ctx, w.r.workspace, dir, holt.MostJobArtifacts)
		if err != nil && holt.CodeOf(err) != holt.NotFound { // the command may have removed the directory
			return fmt.Errorf("publish the outputs: %w", err)
		}
	}
	for _, file := range p.Paths {
		if err := w.s.point("publish"); err != nil {
			return err
		}
		output := inOutputs(file)
		at := path.Join(dir, output)
		a, err := w.s.cfg.Artifacts.PublishFor(ctx,
			holt.ArtifactOrigin{By: "job " + string(w.r.ID), Job: w.r.ID, Run: w.r.RunID, Computer: name(w.r.ID), ComputerID: w.r.ComputerID, Path: holt.OSString(home + at)},
			holt.ArtifactSpec{Workspace: string(w.r.workspace), Path: holt.OSString(at), Bucket: p.Bucket, Name: string(w.r.ID) + "/" + output},
			fmt.Sprintf("%s/publish/%x", w.r.ID, sha256.Sum256([]byte(output))))
		if err != nil {
			return fmt.Errorf("publish the output %s: %w", holt.Clip(output, 80), err)
		}
		w.r.Artifacts = append(w.r.Artifacts, a.ID)
	}
	return nil
}
