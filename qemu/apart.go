package qemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"holt"
	"holt/jail"
	"holt/machine"
)

// mostBeneath bounds the disks that one lies over. There are never as many.
const mostBeneath = 256

// apart tells whether machines can be in jails, and says why not.
func apart(binary string, opt Options, log *slog.Logger) bool {
	if len(opt.Apart) == 0 {
		return false
	}
	if err := jail.Check(binary, opt.Apart...); err != nil {
		level := slog.LevelWarn
		if os.Geteuid() != 0 { // nothing is missing
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "machines run as the daemon's user", "err", err)
		return false
	}
	return true
}

// cell is what QEMU sees: what it boots, its disk and those beneath, and the memory that it goes on from.
func (g *guest) cell() (c jail.Cell, err error) {
	if !g.engine.apart {
		return c, nil
	}
	c.User = jail.User("qemu " + g.Dir.Path)
	if g.engine.verdict.Accel == machine.AccelKVM {
		c.Devices = []string{"/dev/kvm"}
	}
	c.Files = []jail.File{{Path: g.spec.Kernel}, {Path: g.Dir.File(machine.InitrdFile)}}
	if g.spec.Disk != "" {
		beneath, err := diskBeneath(g.spec.Disk)
		if err != nil {
			return c, err
		}
		c.Files = append(append(c.Files, jail.File{Path: g.spec.Disk, Write: true}), beneath...)
	}
	if g.spec.Restore != "" {
		for i := range g.hardware.parts() {
			c.Private = append(c.Private, filepath.Join(g.spec.Restore, machine.MemoryPart(i)))
		}
	}
	return c, nil
}

// show lets QEMU open a disk that was made for it.
func (g *guest) show(path string) error {
	return jail.Show(g.Handle.PID, jail.File{Path: path, Write: true})
}

// showBeneath lets QEMU open the disks that one lies over as they are now.
func (g *guest) showBeneath(path string) error {
	beneath, err := diskBeneath(path)
	if err != nil {
		return err
	}
	return jail.Show(g.Handle.PID, beneath...)
}

// tidy takes out of QEMU's sight what was removed: it would keep its room on the host's disk.
func (g *guest) tidy() error { return jail.Show(g.Handle.PID) }

// freeze has QEMU no more open for writing the disk that goes with an image.
func (s *snapshot) freeze() {
	if s.frozen == "" {
		return
	}
	if err := jail.Show(s.Handle.PID, jail.File{Path: s.frozen}); err != nil && !s.isOver(err) {
		s.engine.log.Warn("a frozen disk stays writable for its machine", "disk", s.frozen, "err", err)
	}
}

// diskBeneath are the disks that a qcow2 lies over, by the names in them.
func diskBeneath(path string) (all []jail.File, err error) {
	for len(all) < mostBeneath {
		base, qcow2, err := baseOf(path)
		if err != nil {
			return nil, holt.Errorf(holt.Corrupt, "look at disk %s: %w", path, err)
		}
		if base == "" {
			return all, nil
		}
		all, path = append(all, jail.File{Path: base}), base
		if !qcow2 {
			return all, nil
		}
	}
	return nil, holt.Errorf(holt.Corrupt, "disk %s lies over more than %d others", path, mostBeneath)
}

// Of a qcow2's header (docs/interop/qcow2.txt of QEMU).
const (
	lengthAt     = 100 // of the header, from version 3 on
	shortHeader  = 72  // of version 2
	baseFormat   = 0xe2792aca
	mostName     = 1023 // bytes
	mostHeader   = 1 << 16
	extensionEnd = 0
)

// baseOf returns the disk that a qcow2 lies over, "" for none, and whether that is one too.
func baseOf(path string) (base string, qcow2 bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	b := make([]byte, mostHeader)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", false, err
	}
	return parseBase(b[:n])
}

// parseBase is baseOf, of a disk's first bytes.
func parseBase(b []byte) (base string, qcow2 bool, err error) {
	bad := errors.New("it is no qcow2")
	if len(b) < lengthAt+4 || binary.BigEndian.Uint32(b) != qcow2Magic {
		return "", false, bad
	}
	at, size := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
	if at == 0 {
		return "", false, nil
	}
	if size > mostName || at > uint64(len(b)) || uint64(len(b))-at < uint64(size) {
		return "", false, bad
	}
	base = string(b[at : at+uint64(size)])
	if !filepath.IsAbs(base) {
		return "", false, fmt.Errorf("it lies over %q, which is no absolute path", clip(base))
	}
	next := uint64(shortHeader)
	if binary.BigEndian.Uint32(b[4:]) >= 3 {
		next = uint64(binary.BigEndian.Uint32(b[lengthAt:]))
	}
	for next+8 <= uint64(len(b)) {
		kind, size := binary.BigEndian.Uint32(b[next:]), uint64(binary.BigEndian.Uint32(b[next+4:]))
		if kind == extensionEnd || next+8+size > uint64(len(b)) {
			break
		}
		if kind == baseFormat {
			return base, string(b[next+8:next+8+size]) == "qcow2", nil
		}
		next += 8 + (size+7)/8*8
	}
	return base, false, nil
}
