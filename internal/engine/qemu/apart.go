package qemu

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

// apart reports whether machines can run in jails, and logs why not.
func apart(binary string, opt Options, log *slog.Logger) bool {
	if len(opt.Apart) == 0 {
		return false
	}
	if err := jail.Check(binary, opt.Apart...); err != nil {
		level := slog.LevelWarn
		if os.Geteuid() != 0 { // expected, so not a warning
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "machines run as the daemon's user", "err", err)
		return false
	}
	return true
}

// cell returns the jail of QEMU, with the files it needs: kernel and initramfs,
// its disk and the disks below, and a memory image.
func (g *guest) cell() (c jail.Cell, err error) {
	if !g.engine.apart {
		return c, nil
	}
	c.User = jail.User("qemu " + g.Dir.Path)
	if g.engine.verdict.Accel == machine.AccelKVM {
		c.Devices = []string{"/dev/kvm"}
	}
	c.Files = []jail.File{{Path: g.spec.Kernel}, {Path: g.Dir.File(machine.InitrdFile)}, {Path: g.Dir.File(endFile), Write: true}}
	if g.spec.Disk != "" {
		c.Files = append(append(c.Files, jail.File{Path: g.spec.Disk, Write: true}), forReading(g.beneath)...)
	}
	if g.spec.Restore != "" {
		for i := range g.hardware.parts() {
			c.Private = append(c.Private, filepath.Join(g.spec.Restore, machine.MemoryPart(i)))
		}
	}
	return c, nil
}

// show shows QEMU a disk that was created for it.
func (g *guest) show(path string) error {
	return jail.Show(g.Handle.PID, jail.File{Path: path, Write: true})
}

// forReading returns disks as read-only files of a jail.
func forReading(disks []machine.Base) (files []jail.File) {
	for _, d := range disks {
		files = append(files, jail.File{Path: d.Path})
	}
	return files
}

// tidy unmounts removed files from QEMU's jail, so that their blocks are freed.
func (g *guest) tidy() error { return jail.Show(g.Handle.PID) }

// freeze makes the disk that belongs to an image read-only in QEMU's jail.
func (s *snapshot) freeze() {
	if s.frozen == "" {
		return
	}
	if err := jail.Show(s.Handle.PID, jail.File{Path: s.frozen}); err != nil && !s.isOver(err) {
		s.engine.log.Warn("cannot make a frozen disk read-only for its machine", "disk", s.frozen, "err", err)
	}
}
