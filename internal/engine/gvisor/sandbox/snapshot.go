package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/state/statefile"
	gvsandbox "gvisor.dev/gvisor/runsc/sandbox"

	"holt"
	"holt/internal/engine/gvisor"
	"holt/internal/engine/machine"
)

const (
	verdictWait = 15 * time.Second    // for the engine to say what becomes of a held snapshot
	powerSignal = unix.Signal(34 + 4) // SIGRTMIN+4: systemd powers off
)

// serve answers requests.
func (k *keeper) serve(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		go k.answer(c)
	}
}

func (k *keeper) answer(c *net.UnixConn) {
	defer c.Close()
	var r gvisor.Request
	dec := json.NewDecoder(io.LimitReader(c, 1<<20))
	if err := dec.Decode(&r); err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var a gvisor.Answer
	var err error
	switch r.Op {
	case gvisor.OpDisk:
		a.Disk = k.disk
	case gvisor.OpPower:
		if err = k.started(); err == nil {
			err = k.running.SignalContainer(powerSignal, false)
		}
	case gvisor.OpSnapshot:
		if err = k.started(); err == nil && r.Snapshot == nil {
			err = holt.Errorf(holt.InvalidArgument, "the request has no snapshot")
		}
		if err == nil {
			s := &snapshot{keeper: k, spec: *r.Snapshot, conn: c, dec: dec}
			err = s.take()
			a.Report, a.Disk = s.report, k.disk
		}
	default:
		err = holt.Errorf(holt.InvalidArgument, "unknown request %.40q", r.Op)
	}
	if err != nil {
		a.Error = holt.AsError(err)
	}
	json.NewEncoder(c).Encode(a)
	if err == nil && r.Op == gvisor.OpSnapshot && r.Snapshot.End {
		k.end(machine.EndUnknown)
		os.Exit(0) // mu is held: nothing else changes
	}
}

// started returns Unavailable before the sandbox runs.
func (k *keeper) started() error {
	if k.running == nil {
		return holt.Errorf(holt.Unavailable, "the sandbox is starting")
	}
	return nil
}

// snapshot is one that is being taken. The keeper's mu is held.
type snapshot struct {
	*keeper
	spec   machine.SnapshotSpec
	conn   *net.UnixConn
	dec    *json.Decoder
	report machine.SnapshotReport
	paused time.Time
}

func (s *snapshot) path(name string) string { return filepath.Join(s.spec.Dir, name) }

// frozen is the copy of the disk that belongs to the image, until it has the disk's name.
func (s *snapshot) frozen() string { return s.disk + ".frozen" }

// take takes the snapshot. The guest is paused first and resumed last. After an
// error it continues as if nothing had been.
func (s *snapshot) take() error {
	if err := s.running.Pause(); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	s.paused = time.Now()
	taken, paused := s.disk, true
	err := full(s.copy())
	if err == nil {
		err = s.hold()
	}
	if err == nil {
		err = s.swap()
	}
	if err == nil && !s.spec.End {
		err, paused = s.running.Resume(), false
	}
	s.report.Pause = time.Since(s.paused)
	if err == nil {
		err = full(s.keep(taken))
	}
	if err != nil {
		err = errors.Join(err, s.undo(taken))
	}
	if err != nil && paused {
		err = errors.Join(err, s.running.Resume())
	}
	return err
}

// full gives an error the code OutOfSpace if the host's disk is full. The sentry's errors are only text.
func full(err error) error {
	if err == nil || !strings.Contains(err.Error(), unix.ENOSPC.Error()) && !strings.Contains(err.Error(), unix.EDQUOT.Error()) {
		return err
	}
	return holt.Errorf(holt.OutOfSpace, "the host's disk is full: %w", err).WithHint("free some space: as much as the machine's memory, and what its disk holds")
}

// undo gives the disk in use the name that it had, and removes the copy.
func (s *snapshot) undo(taken string) error {
	if s.disk == taken {
		os.Remove(s.frozen())
		return nil
	}
	if err := os.Rename(s.disk, taken); err != nil {
		return fmt.Errorf("rename the disk back: %w", err)
	}
	s.disk = taken
	return nil
}

// copy writes memory and disk of the paused guest.
func (s *snapshot) copy() error {
	err := s.running.Checkpoint(s.conf, s.spec.Dir, gvsandbox.CheckpointOpts{
		Compression: statefile.CompressionLevelNone, Resume: true, ExcludeCommittedZeroPages: true,
	})
	if err != nil {
		return fmt.Errorf("save memory: %w", err)
	}
	if !s.launch.Spec.Unserved {
		if err := syncAt(workspaceDir); err != nil { // pages that programs have mapped and changed
			return err
		}
	}
	if err := syncAt(diskDir); err != nil {
		return err
	}
	return s.freeze()
}

// freeze makes the frozen copy of the disk.
func (s *snapshot) freeze() error {
	h, err := gvisor.ReadDiskHeader(s.disk)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.frozen(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("copy the disk: %w", err)
	}
	err = gvisor.CopySparse(context.Background(), f, s.disk)
	if err == nil {
		err = h.Write(f)
	}
	if err == nil && s.spec.Durable {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("copy the disk: %w", err)
	}
	return nil
}

// hold tells the engine that the guest stands still, and waits for its verdict.
func (s *snapshot) hold() error {
	if err := json.NewEncoder(s.conn).Encode(gvisor.Answer{}); err != nil {
		return err
	}
	s.conn.SetReadDeadline(time.Now().Add(verdictWait))
	var r gvisor.Request
	if err := s.dec.Decode(&r); err != nil {
		return fmt.Errorf("await the verdict: %w", err)
	}
	if r.Op != gvisor.OpGoOn {
		return holt.Errorf(holt.Conflict, "the snapshot was abandoned")
	}
	return nil
}

// swap gives the disk in use its new name, and the frozen copy the old one.
func (s *snapshot) swap() error {
	for _, step := range s.swapSteps() {
		if err := step(); err != nil {
			return fmt.Errorf("swap the disks: %w", err)
		}
	}
	s.disk = s.spec.Disk
	return nil
}

// swapSteps are the steps of swap. If this process is killed between two of them,
// the disk in use is at its new name, if there is a file, or at its old one, and its
// header is right for that name. After the second step it has both.
func (s *snapshot) swapSteps() []func() error {
	return []func() error{
		func() error {
			h, err := gvisor.ReadDiskHeader(s.disk)
			if err != nil {
				return err
			}
			f, err := os.OpenFile(s.disk, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(h.Rename(s.spec.Disk, machine.Base{Path: s.disk, Format: gvisor.DiskFormat}).Write(f), f.Close())
		},
		func() error { return os.Link(s.disk, s.spec.Disk) },
		func() error {
			err := os.Rename(s.frozen(), s.disk)
			if err != nil {
				os.Remove(s.spec.Disk)
			}
			return err
		},
	}
}

// keep completes the image: its record is written last.
func (s *snapshot) keep(frozen string) error {
	if err := s.join(); err != nil {
		return fmt.Errorf("complete the image: %w", err)
	}
	names := []string{machine.MemoryFile, machine.StateFile}
	if s.spec.Durable {
		for _, name := range names {
			if err := machine.Sync(s.path(name)); err != nil {
				return err
			}
		}
		for _, path := range []string{s.disk, filepath.Dir(s.disk)} { // a header and names
			if err := machine.Sync(path); err != nil {
				return err
			}
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(s.path(machine.MemoryFile), &st); err == nil {
		s.report.DataBytes = st.Blocks * 512
	}
	if err := unix.Stat(s.path(machine.StateFile), &st); err == nil {
		s.report.StateBytes = st.Size
	}
	s.report.Rounds, s.report.MemoryBytes = 1, int64(s.launch.Spec.MemoryMB)<<20
	hardware, err := json.Marshal(gvisor.HardwareHere())
	if err != nil {
		return err
	}
	spec := s.launch.Spec
	spec.Disk, spec.Restore, spec.Unserved = frozen, "", false
	im := machine.Image{Engine: gvisor.EngineName, Spec: spec, TakenAt: time.Now().UTC(), Hardware: hardware, Report: s.report}
	if err := im.Write(s.spec.Dir, s.spec.Durable); err != nil || !s.spec.Durable {
		return err
	}
	return machine.Sync(s.spec.Dir)
}

// join makes the image's two files of gVisor's three.
func (s *snapshot) join() error {
	if err := os.Rename(s.path(checkpointfiles.PagesFileName), s.path(machine.MemoryFile)); err != nil {
		return err
	}
	table, err := os.ReadFile(s.path(checkpointfiles.PagesMetadataFileName))
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.path(checkpointfiles.StateFileName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(gvisor.StateTail(table))
	return errors.Join(err, f.Close(),
		os.Remove(s.path(checkpointfiles.PagesMetadataFileName)), os.Rename(s.path(checkpointfiles.StateFileName), s.path(machine.StateFile)))
}

// openImage makes gVisor's three files of an image's two, at to. The third one
// refers to the returned file, so that the image may be removed.
func openImage(dir, to string) (memory *os.File, err error) {
	b, err := os.ReadFile(filepath.Join(dir, machine.StateFile))
	if err != nil {
		return nil, fmt.Errorf("read machine image: %w", err)
	}
	state, table, err := gvisor.SplitState(b)
	if err != nil {
		return nil, err
	}
	if memory, err = os.Open(filepath.Join(dir, machine.MemoryFile)); err != nil {
		return nil, fmt.Errorf("read machine image: %w", err)
	}
	return memory, errors.Join(
		os.WriteFile(filepath.Join(to, checkpointfiles.StateFileName), state, 0o600),
		os.WriteFile(filepath.Join(to, checkpointfiles.PagesMetadataFileName), table, 0o600),
		os.Symlink(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()), filepath.Join(to, checkpointfiles.PagesFileName)))
}
