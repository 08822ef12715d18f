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

// forkWorks forks workspaces of several sizes, and merges.
func forkWorks(z sizes) (works []work[*engineRoom]) {
	for _, n := range z.forks {
		most := 60.0
		if n > 100_000 {
			most = 600
		}
		works = append(works, work[*engineRoom]{
			name: fmt.Sprintf("fork of %s files, until it can be used", number(float64(n))), unit: millis,
			targets: []target{{engineColumn, "", most}}, setup: makeFamily(n), measure: measureFork(n),
		})
	}
	works = append(works, reflinkWorks(z)...)
	n := z.forks[0]
	return append(works, work[*engineRoom]{
		name: fmt.Sprintf("merge of 100 changed files of %s", number(float64(n))), unit: millis, setup: makeFamily(n), measure: measureMerge(n),
	})
}

func (r *engineRoom) family(n int) string { return filepath.Join(r.dir, fmt.Sprint("family-", n)) }

// makeFamily makes what is forked, once.
func makeFamily(n int) func(context.Context, *engineRoom) error {
	return func(ctx context.Context, r *engineRoom) error {
		if _, err := os.Stat(r.family(n)); err == nil {
			return nil
		}
		ws, err := workspace.Create(r.family(n), workspace.Options{Log: r.b.log})
		if err != nil {
			return err
		}
		f := newFiller(ws)
		f.content = f.content[:100]
		for err == nil && f.made < n {
			if err = ctx.Err(); err == nil {
				err = f.next()
			}
		}
		return errors.Join(err, ws.Close())
	}
}

// onFamily runs fn on what makeFamily made, opened with opt.
func onFamily(n int, opt workspace.Options, fn func(context.Context, *engineRoom, *workspace.Workspace) (float64, error)) func(context.Context, *engineRoom) (float64, error) {
	return func(ctx context.Context, r *engineRoom) (v float64, err error) {
		opt.Log = r.b.log
		ws, err := workspace.Open(r.family(n), opt)
		if err != nil {
			return nan, err
		}
		defer func() { err = errors.Join(err, ws.Close(), clearRoom(ctx, r)) }()
		return fn(ctx, r, ws)
	}
}

// measureFork takes the time until the first file of the fork is known.
func measureFork(n int) func(context.Context, *engineRoom) (float64, error) {
	return onFamily(n, workspace.Options{}, func(ctx context.Context, r *engineRoom, ws *workspace.Workspace) (float64, error) {
		start := time.Now()
		child, err := forkOf(ctx, r, ws)
		if err != nil {
			return nan, err
		}
		_, err = child.Tree().Lookup(workspace.Caller{}, workspace.Root, "d0000")
		took := time.Since(start)
		return float64(took.Microseconds()) / 1000, errors.Join(err, child.Close())
	})
}

func forkOf(ctx context.Context, r *engineRoom, ws *workspace.Workspace) (*workspace.Workspace, error) {
	if _, err := ws.Fork(ctx, r.path(), workspace.ForkOptions{}); err != nil {
		return nil, err
	}
	return workspace.Open(r.path(), workspace.Options{Log: r.b.log})
}

// measureMerge changes 100 files of a fork and merges them.
func measureMerge(n int) func(context.Context, *engineRoom) (float64, error) {
	return onFamily(n, workspace.Options{}, func(ctx context.Context, r *engineRoom, ws *workspace.Workspace) (v float64, err error) {
		child, err := forkOf(ctx, r, ws)
		if err != nil {
			return nan, err
		}
		defer func() { err = errors.Join(err, child.Close()) }()
		t := child.Tree()
		for i := range 100 {
			at := i * (n / 100)
			d, err := t.Lookup(workspace.Caller{}, workspace.Root, fmt.Sprintf("d%04d", at/1000))
			if err != nil {
				return nan, err
			}
			a, err := t.Lookup(workspace.Caller{}, d.Ino, fmt.Sprintf("f%06d", at))
			if err == nil {
				_, err = t.Write(callerOf("agent"), a.Ino, 0, []byte(time.Now().String()))
			}
			if err != nil {
				return nan, err
			}
		}
		start := time.Now()
		report, err := ws.Merge(ctx, callerOf("merger"), child, workspace.MergeOptions{})
		took := time.Since(start)
		if err == nil && (len(report.Changes) != 100 || len(report.Conflicts) > 0) {
			err = fmt.Errorf("merged %d files with %d conflicts", len(report.Changes), len(report.Conflicts))
		}
		return float64(took.Microseconds()) / 1000, err
	})
}
