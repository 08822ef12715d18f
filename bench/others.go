package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const othersAbout = `
The same works beside what else can be mounted, with a thirtieth of the files, a sixteenth of the bytes and a sixtieth of the syncs, in turns.
*rclone* mounts a local directory with its full cache, *s3fs* a bucket in the memory of this process, which answers at once.
Neither promises what a workspace does: both answer a write when it is in a cache of their own; rclone sends a file
to where it belongs seconds after it was closed, and keeps no modes; s3fs sends the whole file at each close and fsync, and renames
by copying. What they put off can burden who is measured next. Each work has %s; who takes a quarter of that is not asked again.
*All cold* restarts what serves the workspace, not the others.`

// othersPatience is how long one work may take in one place. The others are
// ten times slower at some.
const othersPatience = 40 * time.Second

// besideOthers measures file work on mounts of other programs that are
// installed, beside a workspace.
func besideOthers(ctx context.Context, b *bench, dir string) (*section, error) {
	s := &section{title: "Beside other mounts", about: strings.Replace(othersAbout, "%s", othersPatience.String(), 1)}
	columns, err := openPlaces(ctx, b, dir, opener{workspaceColumn, openWorkspace}, opener{rcloneColumn, openRclone}, opener{s3fsColumn, openS3fs})
	if err != nil {
		return nil, err
	}
	for _, c := range columns {
		s.columns = append(s.columns, c.name)
		if c.name != workspaceColumn {
			s.ratios = append(s.ratios, [2]string{workspaceColumn, c.name})
		}
	}
	if len(columns) < 3 {
		s.notes = append(s.notes, "rclone or s3fs is not installed: `./scripts/test-deps bench`")
	}
	hurried := &bench{sizes: b.sizes, said: b.said}
	hurried.patience = min(b.patience, othersPatience)
	hurried.files, hurried.syncs, hurried.megabytes = max(10, b.files/30), max(10, b.syncs/60), max(8, b.megabytes/16)
	archive := filepath.Join(dir, "tree.tar")
	if err := makeTar(archive, hurried.files); err != nil {
		return nil, err
	}
	for _, w := range othersWorks(hurried.sizes, archive) {
		if !b.wants("host", w.name) {
			continue
		}
		f, err := rounds(ctx, hurried, min(b.rounds, 3), w, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, nil
}

// othersWorks are those that take the others no minutes, without targets.
func othersWorks(z sizes, archive string) []placeWork {
	long := func(w placeWork) bool {
		return slices.ContainsFunc([]string{"git ", "npm ", "find, ", "rm -r ", "the same ", "stat, all cold"}, func(s string) bool { return strings.HasPrefix(w.name, s) })
	}
	works := slices.DeleteFunc(hostWorks(z, workspaceColumn, sources{tar: archive}), long)
	for i := range works {
		works[i].targets = nil
	}
	return works
}
