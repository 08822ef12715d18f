package httpapi

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"holt"
	"holt/internal/api"
	"holt/internal/httppart"
)

// check reports whether the file is the one that the caller believes to replace.
func check(p api.Preconditions, etag string) error {
	if p.IfMatch != "" && !httppart.Matches(p.IfMatch, etag) {
		return notThat("the file is not the one that was to be replaced")
	}
	if p.IfNoneMatch != "" && httppart.Matches(p.IfNoneMatch, etag) {
		return notThat("the file is there already")
	}
	return nil
}

func notThat(sentence string) error {
	return answer{holt.Errorf(holt.Conflict, "%s", sentence).WithHint("the file has changed since you read it, and nothing was written; read it again"), http.StatusPreconditionFailed}
}

// editing are the files that are being replaced under conditions, so that of several who replace what they have all read one wins.
type editing struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when it is let go
}

// hold waits for a file and has it until release is called.
func (e *editing) hold(ctx context.Context, file string) (release func(), err error) {
	for {
		e.mu.Lock()
		other := e.held[file]
		if other == nil {
			mine := make(chan struct{})
			if e.held == nil {
				e.held = map[string]chan struct{}{}
			}
			e.held[file] = mine
			e.mu.Unlock()
			return func() {
				e.mu.Lock()
				delete(e.held, file)
				e.mu.Unlock()
				close(mine)
			}, nil
		}
		e.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// conditional is a body at whose end, right before what was read takes the file's place, the conditions are looked at. From
// then on until it is released no other call replaces the file under conditions, so a slow sender holds up no one.
type conditional struct {
	io.Reader
	check   func() (release func(), err error)
	release func()
	failed  error
}

func (c *conditional) Read(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.Reader.Read(p)
	if err == io.EOF && c.release == nil {
		if c.release, c.failed = c.check(); c.failed != nil {
			return n, c.failed
		}
	}
	return n, err
}

// writeIf writes a file if it is then what the caller believes.
func (s fileRoutes) writeIf(ctx context.Context, ref, file string, spec holt.WriteSpec, p api.Preconditions, body io.Reader) (holt.FileInfo, error) {
	look := func() error {
		info, err := s.nouns.Stat(ctx, ref, file)
		switch {
		case holt.CodeOf(err) == holt.NotFound:
			return check(p, "")
		case err != nil:
			return err
		case info.Kind != "file":
			return holt.Errorf(holt.InvalidArgument, "%s is a %s and has no ETag", clip(file), info.Kind).WithHint("use the path of the file that it points to")
		}
		return check(p, info.ETag())
	}
	if err := look(); err != nil { // before anything is sent that would be for nothing
		return holt.FileInfo{}, err
	}
	owner, err := s.id(ctx, ref)
	if err != nil {
		return holt.FileInfo{}, err
	}
	c := &conditional{Reader: body, check: func() (func(), error) {
		release, err := s.editing.hold(ctx, owner+" "+file)
		if err != nil {
			return nil, err
		}
		if err := look(); err != nil {
			release()
			return nil, err
		}
		return release, nil
	}}
	info, err := s.nouns.Write(ctx, ref, file, spec, c)
	if c.failed != nil {
		return info, c.failed
	}
	if c.release != nil {
		c.release()
	}
	return info, err
}

// id is the id of the computer or workspace that has the files.
func (s fileRoutes) id(ctx context.Context, ref string) (string, error) {
	if strings.Contains(s.calls.Stat.Path, "{computer}") {
		c, err := s.opt.Nouns.Computers.Get(ctx, ref)
		return string(c.ID), err
	}
	w, err := s.opt.Nouns.Workspaces.Get(ctx, ref)
	return string(w.ID), err
}
