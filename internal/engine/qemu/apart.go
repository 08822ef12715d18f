package qemu

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

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

// show lets QEMU open a disk that was made for it.
func (g *guest) show(path string) error {
	return jail.Show(g.Handle.PID, jail.File{Path: path, Write: true})
}

// forReading are disks as they are shown to whoever reads them.
func forReading(disks []machine.Base) (files []jail.File) {
	for _, d := range disks {
		files = append(files, jail.File{Path: d.Path})
	}
	return files
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
