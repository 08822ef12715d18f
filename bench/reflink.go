package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// reflinkWorks forks where files can share blocks. The design's target is for
// the largest of its sizes.
func reflinkWorks(z sizes) (works []work[*engineRoom]) {
	for _, n := range z.forks {
		w := work[*engineRoom]{
			name: fmt.Sprintf("fork of %s files on XFS (reflink), until it can be used", number(float64(n))), unit: millis,
			targets: []target{{engineColumn, "", 100}},
			setup: func(ctx context.Context, r *engineRoom) error {
				_, err := onReflink(ctx, r, func(r *engineRoom) (float64, error) { return 0, makeFamily(n)(ctx, r) })
				return err
			},
			measure: func(ctx context.Context, r *engineRoom) (float64, error) {
				return onReflink(ctx, r, func(r *engineRoom) (float64, error) { return measureFork(n)(ctx, r) })
			},
		}
		works = append(works, w)
	}
	return works
}

// onReflink calls fn with a room on an XFS file system in a file, which is made
// when it is first needed.
func onReflink(ctx context.Context, r *engineRoom, fn func(*engineRoom) (float64, error)) (v float64, err error) {
	image, dir := filepath.Join(r.dir, "reflink.xfs"), filepath.Join(r.dir, "reflink")
	if _, err := os.Stat(image); err != nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nan, err
		}
		if err := os.WriteFile(image, nil, 0o600); err != nil {
			return nan, err
		}
		if err := os.Truncate(image, 8<<30); err != nil { // sparse
			return nan, err
		}
		if _, err := command(ctx, "mkfs.xfs", "-q", "-m", "reflink=1", image); err != nil {
			return nan, errors.Join(err, os.Remove(image))
		}
	}
	if _, err := command(ctx, "mount", "-t", "xfs", "-o", "loop", image, dir); err != nil {
		return nan, err
	}
	defer func() {
		_, ended := command(context.WithoutCancel(ctx), "umount", dir)
		err = errors.Join(err, ended)
	}()
	room := *r
	room.dir = dir
	return fn(&room)
}
