package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

const budgetAbout = `
Processor time, user and system, that the serving process spends on one operation; what the program that asks and its
kernel spend is not in it. *FUSE* is all of it when next to nothing is behind the mount (bare). The next three
are of the package called directly with the calls that the kernel's requests become: *our code* with a journal that is
memory and an index that is not written, *journal* what a journal on the disk adds, *index* what SQLite adds in the
background. *Mounted* is the whole, measured on its own, beside other rounds of garbage collection: it is near the sum.`

// Columns of the budget.
const (
	fuseColumn    = "FUSE"
	codeColumn    = "our code"
	journalColumn = "journal"
	indexColumn   = "index"
	mountedColumn = "mounted"
)

// budgetOp is an operation that is done n times, through a mount and without.
type budgetOp struct {
	name string
	n    int
	load []string // the load generator's arguments, for a place's directory or file
	call func(r *budgetRoom, n int) error
}

func budgetOps(z sizes) []budgetOp {
	files, mb := strconv.Itoa(z.files), max(8, z.megabytes/8)
	return []budgetOp{
		{"create + write 4 KiB + close", z.files, []string{"create", "-dir", "files", "-n", files}, (*budgetRoom).create},
		{"look a name up, kernel cold", z.files, []string{"stat", "-cold", "-dir", "files", "-n", files}, (*budgetRoom).lookUp},
		{"write 1 MiB", mb, []string{"write", "-file", "large", "-mb", strconv.Itoa(mb)}, (*budgetRoom).write},
		{"read 1 MiB, kernel cold", mb, []string{"read", "-file", "large", "-drop", "file"}, (*budgetRoom).read},
		{"write 4 KiB + fsync", z.syncs, []string{"random", "-file", "large", "-mb", strconv.Itoa(mb), "-n", strconv.Itoa(z.syncs)}, (*budgetRoom).random},
	}
}

// budgetGroup measures what operations cost the serving process.
func budgetGroup(ctx context.Context, b *bench) (*section, error) {
	dir, err := b.sub("budget")
	if err != nil {
		return nil, err
	}
	places, err := openPlaces(ctx, b, dir, opener{bareColumn, openBare}, opener{workspaceColumn, openWorkspace})
	if err != nil {
		return nil, err
	}
	ops := budgetOps(b.sizes)
	s := &section{title: "What an operation costs", about: budgetAbout,
		columns: []string{fuseColumn, codeColumn, journalColumn, indexColumn, mountedColumn}}
	for _, op := range ops {
		s.figures = append(s.figures, &figure{name: op.name, unit: micros})
	}
	for range b.rounds {
		bare, err := mountedCosts(ctx, places[0].place, ops)
		if err != nil {
			return nil, err
		}
		mounted, err := mountedCosts(ctx, places[1].place, ops)
		if err != nil {
			return nil, err
		}
		engine, err := engineCosts(ctx, filepath.Join(dir, "engine"), ops)
		if err != nil {
			return nil, err
		}
		for i, f := range s.figures {
			code, journal, index := engine[0][i], engine[1][i], engine[2][i]
			for column, v := range map[string]float64{fuseColumn: bare[i], codeColumn: code, journalColumn: max(0, journal-code),
				indexColumn: max(0, index-journal), mountedColumn: mounted[i]} {
				f.add(column, v)
			}
		}
	}
	for _, f := range s.figures {
		b.say("%s, µs: %s", f.name, spread(f.samples[mountedColumn]))
	}
	return s, nil
}

// spent returns the processor time of this process so far, µs.
func spent() float64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return nan
	}
	return float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e3
}

// cost returns what one of n operations costs this process, µs.
func cost(n int, do func() error) (float64, error) {
	runtime.GC()
	before := spent()
	err := do()
	return (spent() - before) / float64(n), err
}

// mountedCosts does each operation through a mount.
func mountedCosts(ctx context.Context, p *place, ops []budgetOp) (out []float64, err error) {
	for _, op := range ops {
		args := append([]string{}, op.load...)
		for i, a := range args[:len(args)-1] {
			if a == "-dir" || a == "-file" {
				args[i+1] = p.path(args[i+1])
			}
		}
		if err := forget(ctx, p); err != nil {
			return nil, err
		}
		v, err := cost(op.n, func() error {
			_, err := p.run(ctx, args...)
			if err == nil && p.flush != nil {
				err = p.flush()
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		out = append(out, v)
	}
	return out, errors.Join(p.remove(ctx, "files"), p.remove(ctx, "large"))
}

// engineCosts does each operation without a mount: with neither disk nor
// index, without an index, and as it is.
func engineCosts(ctx context.Context, dir string, ops []budgetOp) (out [3][]float64, err error) {
	never := workspace.Options{FlushOps: 1 << 30, FlushInterval: time.Hour, MaxDirty: 1 << 30}
	inMemory := never
	inMemory.Disk = newRAM()
	for i, opt := range []workspace.Options{inMemory, never, {}} {
		if out[i], err = directCosts(ctx, dir, opt, ops); err != nil {
			return out, err
		}
	}
	return out, nil
}

func directCosts(ctx context.Context, dir string, opt workspace.Options, ops []budgetOp) (out []float64, err error) {
	ws, err := workspace.Create(dir, opt)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ws.Close(), os.RemoveAll(dir)) }()
	r := &budgetRoom{tree: ws.Tree(), caller: callerOf("bench"), piece: make([]byte, 1<<20), places: rand.New(rand.NewSource(3))}
	for _, op := range ops {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := cost(op.n, func() error {
			err := op.call(r, op.n)
			if err == nil && opt.FlushOps == 0 {
				err = ws.Flush()
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		out = append(out, v)
	}
	return out, nil
}

// budgetRoom does what the kernel asks for when the load generator runs.
type budgetRoom struct {
	tree   *workspace.Tree
	caller workspace.Caller
	piece  []byte
	places *rand.Rand
	dirs   []workspace.Ino
	large  workspace.Ino
	pieces int
}

const budgetPerDir = 1000

func (r *budgetRoom) create(n int) error {
	for i := range n {
		if i%budgetPerDir == 0 {
			d, err := r.tree.Mkdir(r.caller, workspace.Root, fmt.Sprintf("d%03d", i/budgetPerDir), 0o755)
			if err != nil {
				return err
			}
			r.dirs = append(r.dirs, d.Ino)
		}
		dir, name := r.dirs[len(r.dirs)-1], fmt.Sprintf("f%06d", i)
		if _, err := r.tree.GetAttr(dir); err != nil {
			return err
		}
		if _, err := r.tree.Lookup(r.caller, dir, name); err != unix.ENOENT {
			return fmt.Errorf("look %s up: %w", name, err)
		}
		a, err := r.tree.Create(r.caller, dir, name, 0o644)
		if err != nil {
			return err
		}
		if _, err := r.tree.GetXattr(a.Ino, "security.capability"); err != unix.ENODATA {
			return fmt.Errorf("capability of %s: %w", name, err)
		}
		if _, err := r.tree.Write(r.caller, a.Ino, 0, r.piece[:4<<10]); err != nil {
			return err
		}
	}
	return nil
}

func (r *budgetRoom) lookUp(n int) error {
	for i := range n {
		if _, err := r.tree.Lookup(r.caller, r.dirs[i/budgetPerDir], fmt.Sprintf("f%06d", i)); err != nil {
			return err
		}
	}
	return nil
}

func (r *budgetRoom) write(n int) error {
	a, err := r.tree.Create(r.caller, workspace.Root, "large", 0o644)
	r.large, r.pieces = a.Ino, n
	for i := 0; err == nil && i < n; i++ {
		_, err = r.tree.Write(r.caller, r.large, int64(i)<<20, r.piece)
	}
	return err
}

func (r *budgetRoom) read(n int) error {
	for i := range n {
		if _, err := r.tree.Read(r.large, int64(i)<<20, r.piece); err != nil {
			return err
		}
	}
	return nil
}

func (r *budgetRoom) random(n int) error {
	for range n {
		off := r.places.Int63n(int64(r.pieces)<<8) << 12
		if _, err := r.tree.Write(r.caller, r.large, off, r.piece[:4<<10]); err != nil {
			return err
		}
		if err := r.tree.Fsync(r.large); err != nil {
			return err
		}
	}
	return nil
}
