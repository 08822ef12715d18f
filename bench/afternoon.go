package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"holt/internal/workspace"
)

// afternoonWorks ask what became of a project that three runs did harm to (one
// deleted src with half of its files, one wrote into another file, one moved the rest), and
// take it back.
func afternoonWorks(z sizes) []work[*engineRoom] {
	on := fmt.Sprintf("after a bad afternoon, %s files", number(float64(z.afternoon)))
	one := func(name string, do func(context.Context, *workspace.Workspace) (int, error), targets ...target) work[*engineRoom] {
		return work[*engineRoom]{name: on + ": " + name, unit: millis, targets: targets, setup: makeAfternoon, before: afternoon, measure: measurePast(do), after: clearRoom}
	}
	return []work[*engineRoom]{
		one("history of a file", func(ctx context.Context, ws *workspace.Workspace) (int, error) {
			events, err := ws.History(ctx, "/moved/data")
			return len(events), err
		}, target{engineColumn, "", 100}),
		one("diff of all", func(ctx context.Context, ws *workspace.Workspace) (n int, err error) {
			err = ws.Diff(ctx, "morning", workspace.Live, workspace.DiffOptions{}, func(workspace.Change) error { n++; return nil })
			return n, err
		}, target{engineColumn, "", 100}),
		one("undo of the first run", func(ctx context.Context, ws *workspace.Workspace) (int, error) {
			r, err := ws.Undo(ctx, callerOf("ada"), "first", workspace.RestoreOptions{})
			return len(r.Changes), err
		}),
		one("restore of all", func(ctx context.Context, ws *workspace.Workspace) (int, error) {
			r, err := ws.Restore(ctx, callerOf("ada"), "morning", workspace.RestoreOptions{})
			return len(r.Changes), err
		}),
	}
}

func (r *engineRoom) noon() string { return filepath.Join(r.dir, "noon") }

// afternoon is a fresh copy of the workspace after the three runs.
func afternoon(_ context.Context, r *engineRoom) error {
	return errors.Join(os.RemoveAll(r.path()), os.CopyFS(r.path(), os.DirFS(r.noon())))
}

// measurePast times one question that must find something.
func measurePast(do func(context.Context, *workspace.Workspace) (int, error)) func(context.Context, *engineRoom) (float64, error) {
	return func(ctx context.Context, r *engineRoom) (float64, error) {
		ws, err := workspace.Open(r.path(), workspace.Options{Log: r.b.log})
		if err != nil {
			return nan, err
		}
		start := time.Now()
		n, err := do(ctx, ws)
		took := time.Since(start)
		if err == nil && n == 0 {
			err = errors.New("nothing was found")
		}
		return float64(took.Microseconds()) / 1e3, errors.Join(err, ws.Close())
	}
}

// makeAfternoon makes the project and has the three runs work on it, once.
func makeAfternoon(ctx context.Context, r *engineRoom) error {
	if _, err := os.Stat(r.noon()); err == nil {
		return nil
	}
	ws, err := workspace.Create(r.noon(), workspace.Options{Log: r.b.log})
	if err != nil {
		return err
	}
	f := newFiller(ws)
	f.perDir, f.content = 100, []byte("a few bytes")
	for f.made < r.b.afternoon && err == nil {
		err = errors.Join(f.next(), ctx.Err())
	}
	if err == nil {
		var file workspace.Attr
		if file, err = ws.Tree().Create(f.caller, workspace.Root, "data", 0o644); err == nil {
			_, err = ws.Tree().Write(f.caller, file.Ino, 0, make([]byte, 1<<20))
		}
	}
	if err == nil {
		_, err = ws.Checkpoint(workspace.CheckpointOptions{Name: "morning"})
	}
	for _, run := range []struct {
		name string
		do   func(workspace.Files) error
	}{
		{"first", func(files workspace.Files) error { return deleteHalf(ctx, files) }},
		{"second", func(files workspace.Files) error {
			a, err := files.Tree.Resolve("/data", false)
			if err == nil {
				_, err = files.Tree.Write(files.Caller, a.Ino, 4096, make([]byte, 4096))
			}
			return err
		}},
		{"third", moveRest},
	} {
		if err == nil {
			err = harm(ctx, ws, run.name, run.do)
		}
	}
	return errors.Join(err, ws.Close())
}

// harm does what a run does.
func harm(ctx context.Context, ws *workspace.Workspace, run string, do func(workspace.Files) error) error {
	if _, err := ws.BeginRun(run); err != nil {
		return err
	}
	err := do(workspace.Files{Tree: ws.Tree(), Caller: workspace.Caller{Writer: workspace.Writer{Kind: "run", Name: "agent", Run: run}}})
	_, _, ended := ws.EndRun(ctx, run, true)
	return errors.Join(err, ended)
}

// deleteHalf removes every other directory of the project.
func deleteHalf(ctx context.Context, files workspace.Files) error {
	dirs, err := list(files.Tree, workspace.Root)
	for i, d := range dirs {
		if err == nil && d.Mode&0o170000 == 0o040000 && i%2 == 0 {
			err = files.Remove(ctx, "/"+d.Name, true)
		}
	}
	return err
}

// moveRest moves what is left one level down.
func moveRest(files workspace.Files) error {
	dirs, err := list(files.Tree, workspace.Root)
	if err == nil {
		_, err = files.Mkdir("/moved", 0o755, false)
	}
	for _, d := range dirs {
		if err == nil {
			err = files.Rename("/"+d.Name, "/moved/"+d.Name)
		}
	}
	return err
}
