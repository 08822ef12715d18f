package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holt/internal/store/parcel"
	"holt/internal/workspace"
)

// importWork brings a source tree of the host into a new workspace: it is
// walked and packed by one goroutine and taken in by another, as by the command
// and the daemon, which are two processes. The tree is in the host's page cache.
func importWork(z sizes) work[*engineRoom] {
	return work[*engineRoom]{
		name: fmt.Sprintf("import of a source tree of %s files", number(float64(z.files))), unit: perSecond,
		targets: []target{{engineColumn, "", 10_000}}, setup: makeSource, measure: measureImport, after: clearRoom,
	}
}

func (r *engineRoom) source() string { return filepath.Join(r.dir, "source") }

// makeSource unpacks the tree once.
func makeSource(ctx context.Context, r *engineRoom) error {
	if _, err := os.Stat(r.source()); err == nil {
		return nil
	}
	archive := filepath.Join(r.dir, "source.tar")
	if err := errors.Join(makeTar(archive, r.b.files), os.Mkdir(r.source(), 0o755)); err != nil {
		return err
	}
	_, err := command(ctx, "tar", "-C", r.source(), "-xf", archive)
	return errors.Join(err, os.Remove(archive))
}

// measureImport returns files a second, until the workspace has them.
func measureImport(ctx context.Context, r *engineRoom) (v float64, err error) {
	ws, err := workspace.Create(r.path(), workspace.Options{Log: r.b.log})
	if err != nil {
		return nan, err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	start := time.Now()
	total, err := parcel.Measure(ctx, r.source(), parcel.Options{})
	if err != nil {
		return nan, err
	}
	in, out := io.Pipe()
	go func() { out.CloseWithError(packInto(ctx, r.source(), out, total)) }()
	defer in.Close()
	p, err := parcel.NewReader(in)
	if err != nil {
		return nan, err
	}
	if _, err := ws.Import(ctx, p, workspace.ImportSpec{}); err != nil {
		return nan, err
	}
	took := time.Since(start)
	if made := ws.Stat().Inodes; made < int64(r.b.files) {
		return nan, fmt.Errorf("import made %d files of %d", made, r.b.files)
	}
	return float64(r.b.files) / took.Seconds(), nil
}

func packInto(ctx context.Context, dir string, w io.Writer, total parcel.Totals) error {
	p, err := parcel.NewWriter(w, total)
	if err != nil {
		return err
	}
	if _, err := parcel.Pack(ctx, dir, p, parcel.Options{}); err != nil {
		return err
	}
	return p.Close()
}
