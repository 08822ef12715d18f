package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holt/internal/workspace"
)

const (
	changedFiles = 100    // between two checkpoints that are timed
	timedPoints  = 100    // checkpoints; the median of them is one figure
	manyPoints   = 10_000 // checkpoints that a long life leaves
)

// pastWorks ask what it costs to keep a checkpoint, in a young workspace and in
// one with many, and to look at what changed since one.
func pastWorks(z sizes) []work[*engineRoom] {
	n := number(float64(z.engineFiles))
	many := min(manyPoints, z.engineFiles)
	return []work[*engineRoom]{
		{
			name: fmt.Sprintf("checkpoint, %d of %s files changed", changedFiles, n), unit: millis, targets: []target{{engineColumn, "", 2}},
			measure: measureCheckpoint(0), after: clearRoom,
		},
		{
			name: fmt.Sprintf("the same in a workspace with %s checkpoints", number(float64(many))), unit: millis, targets: []target{{engineColumn, "", 2}},
			measure: measureCheckpoint(many), after: clearRoom,
		},
		{
			name: fmt.Sprintf("diff, %d of %s files changed", changedFiles, n), unit: millis, targets: []target{{engineColumn, "", 10}},
			measure: measureDiff, after: clearRoom,
		},
	}
}

// changing is a workspace with b.engineFiles files, and what writes to some of them.
type changing struct {
	*workspace.Workspace
	*filler
	all []workspace.Ino
	at  int
}

func (r *engineRoom) changing(ctx context.Context, use func(*changing) (float64, error)) (v float64, err error) {
	ws, err := workspace.Create(r.path(), workspace.Options{Log: r.b.log})
	if err != nil {
		return nan, err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	c := &changing{Workspace: ws, filler: newFiller(ws)}
	c.content = []byte("a few bytes")
	for c.made < r.b.engineFiles {
		if err := errors.Join(c.filler.next(), ctx.Err()); err != nil {
			return nan, err
		}
	}
	dirs, err := list(c.tree, workspace.Root)
	for _, d := range dirs {
		var files []workspace.DirEntry
		if err == nil {
			files, err = list(c.tree, d.Ino)
		}
		for _, f := range files {
			if d.Mode&0o170000 == 0o040000 {
				c.all = append(c.all, f.Ino)
			}
		}
	}
	if err != nil {
		return nan, err
	}
	return use(c)
}

// change writes to n files, others each time, which lie far apart.
func (c *changing) change(n int) error {
	for range n {
		c.at = (c.at + 7919) % len(c.all)
		if _, err := c.tree.Write(c.caller, c.all[c.at], 0, []byte("changed")); err != nil {
			return err
		}
	}
	return nil
}

// keep takes one checkpoint with a name, which stays, after n changes.
func (c *changing) keep(n, i int) (took time.Duration, err error) {
	if err := c.change(n); err != nil {
		return 0, err
	}
	start := time.Now()
	_, err = c.Checkpoint(workspace.CheckpointOptions{Name: fmt.Sprint("point-", i)})
	return time.Since(start), err
}

// measureCheckpoint takes the median of some checkpoints in a workspace that has
// others already.
func measureCheckpoint(others int) func(context.Context, *engineRoom) (float64, error) {
	return func(ctx context.Context, r *engineRoom) (float64, error) {
		return r.changing(ctx, func(c *changing) (float64, error) {
			for i := range others {
				if _, err := c.keep(1, i); err != nil || ctx.Err() != nil {
					return nan, errors.Join(err, ctx.Err())
				}
			}
			var took []time.Duration
			for i := range timedPoints {
				t, err := c.keep(changedFiles, others+i)
				if err != nil {
					return nan, err
				}
				took = append(took, t)
			}
			slices.Sort(took)
			return took[len(took)/2].Seconds() * 1e3, nil
		})
	}
}

func measureDiff(ctx context.Context, r *engineRoom) (float64, error) {
	return r.changing(ctx, func(c *changing) (float64, error) {
		if _, err := c.keep(0, 0); err != nil {
			return nan, err
		}
		if err := errors.Join(c.change(changedFiles), c.Flush()); err != nil {
			return nan, err
		}
		if _, err := c.Query(ctx, "SELECT path FROM files LIMIT 1", workspace.Limits{}); err != nil { // opens a connection
			return nan, err
		}
		found := 0
		start := time.Now()
		err := c.Diff(ctx, "point-0", workspace.Live, workspace.DiffOptions{}, func(workspace.Change) error { found++; return nil })
		took := time.Since(start)
		if err == nil && found != changedFiles {
			err = fmt.Errorf("%d changes were found, %d were made", found, changedFiles)
		}
		return took.Seconds() * 1e3, err
	})
}
