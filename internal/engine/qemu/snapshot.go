package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const (
	// undoWait is how long an abandoned snapshot waits for the guest to continue.
	undoWait = 30 * time.Second
	// standWait is the timeout for the steps while the guest is stopped and afterwards.
	standWait = 2 * time.Minute
	// heldWait is the caller's part of that.
	heldWait = 10 * time.Second
)

// Snapshot implements [machine.Machine]: live precopy into a pipe, decoded by a
// [splitter], with the disk switched while the processors are stopped.
func (g *guest) Snapshot(ctx context.Context, spec machine.SnapshotSpec) (machine.SnapshotReport, error) {
	var none machine.SnapshotReport
	spec, err := spec.WithDefaults()
	if err != nil {
		return none, err
	}
	if !g.taking.TryLock() {
		return none, holt.Errorf(holt.Conflict, "another snapshot of this machine is being taken")
	}
	defer g.taking.Unlock()
	if (spec.Disk == "") != (g.Disk() == "") {
		return none, holt.Errorf(holt.InvalidArgument, "a snapshot needs a new disk exactly if the machine has one")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.holding, cancel)()
	if err := g.refreshAdded(ctx); err != nil {
		return none, fmt.Errorf("find out what was added to the machine: %w", err)
	}
	s := &snapshot{guest: g, spec: spec, frozen: g.Disk()}
	s.report.MemoryBytes = int64(g.hardware.shape().MemoryMB) * mib
	if err := s.take(ctx); err != nil {
		s.abandon()
		return none, s.explain(err)
	}
	return s.report, nil
}

// snapshot is a snapshot in progress.
type snapshot struct {
	*guest
	spec   machine.SnapshotSpec
	report machine.SnapshotReport
	frozen string // the disk that belongs to the image

	made   bool       // spec.Dir was created here
	memory []*os.File // one file for each part of memory
	state  *os.File
	disk   *overlay // nil: none
	begun  bool     // QEMU may have started to migrate
	stream *stream  // nil: not started
}

// step is a step of a snapshot; tests run code in between.
type step struct {
	name string
	do   func(context.Context) error
}

// take runs the steps: while the guest runs, while it is stopped, and afterwards.
// ctx can end only the first phase: the others are short.
//
// Held is called when the copy of the memory is complete. Until then input from
// the ports may still enter it: a server that records its position in Held knows
// that the image has no later answers.
func (s *snapshot) take(ctx context.Context) error {
	err := s.steps(ctx, []step{
		{"look", s.look},
		{"make files", s.makeFiles},
		{"make disk", s.makeDisk},
		{"copy memory", s.converge},
	})
	if err != nil {
		return err
	}
	standing, cancel := context.WithTimeout(context.WithoutCancel(ctx), standWait)
	defer cancel()
	return s.steps(standing, []step{
		{"swap disk", s.swap},
		{"copy devices", s.complete},
		{"hold", func(context.Context) error { return s.hold(ctx) }},
		{"go on", s.goOn},
		{"keep", s.keep},
		{"end", s.end},
	})
}

func (s *snapshot) steps(ctx context.Context, steps []step) error {
	for _, step := range steps {
		s.engine.step(step.name)
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look refuses a machine that is not running.
func (s *snapshot) look(ctx context.Context) error {
	status, err := s.status(ctx)
	switch {
	case err != nil:
		return err
	case status == "io-error":
		return machine.FullDisk(filepath.Dir(s.Disk()))
	case status != "running":
		return holt.Errorf(holt.Conflict, "the machine is not running: its status is %s", clip(status))
	}
	return machine.Room(filepath.Dir(s.spec.Dir), machine.MinFreeMB)
}

// makeFiles creates the image's directory and files.
func (s *snapshot) makeFiles(context.Context) (err error) {
	if err := os.Mkdir(s.spec.Dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return holt.Errorf(holt.AlreadyExists, "image directory %s exists already", s.spec.Dir)
		}
		return fmt.Errorf("make image directory: %w", err)
	}
	s.made = true
	make := func(name string, bytes int64) (*os.File, error) {
		f, err := os.OpenFile(filepath.Join(s.spec.Dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("make image: %w", err)
		}
		return f, f.Truncate(bytes)
	}
	if s.state, err = make(machine.StateFile, 0); err != nil {
		return err
	}
	for i, sizeMB := range s.hardware.parts() {
		f, err := make(machine.MemoryPart(i), int64(sizeMB)*mib)
		if f != nil {
			s.memory = append(s.memory, f)
		}
		if err != nil {
			return err
		}
	}
	return s.keepInitrd()
}

// files returns the files of an image's memory and state.
func (s *snapshot) files() []*os.File {
	if s.state == nil {
		return s.memory
	}
	return append(slices.Clone(s.memory), s.state)
}

func (s *snapshot) makeDisk(ctx context.Context) (err error) {
	if s.spec.Disk != "" {
		s.disk, err = s.addOverlay(ctx, s.spec.Disk)
	}
	return err
}

// converge copies memory while the guest runs, until the rest is small enough
// to copy with the guest stopped, or the rounds are exhausted. The guest is
// then stopped.
func (s *snapshot) converge(ctx context.Context) error {
	s.begun = true
	var err error
	if s.stream, err = s.openStream(ctx, s.memory, s.state, s.spec.Pause); err != nil {
		return err
	}
	return s.stream.await(ctx, func(now migration) error {
		s.report.Rounds = max(s.report.Rounds, now.RAM.Rounds)
		s.report.Throttle = max(s.report.Throttle, now.Throttle)
		if s.oneRound() || now.Status == statusPreSwitchover || now.RAM.Rounds < s.spec.MaxRounds || s.report.Forced {
			return nil
		}
		s.report.Forced = true
		return s.monitor.do(ctx, "migrate-set-parameters", map[string]any{"downtime-limit": maxDowntime}, nil)
	}, statusPreSwitchover)
}

func (s *snapshot) hold(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, heldWait)
	defer cancel()
	return s.spec.Held(ctx)
}

// swap freezes the disk, after all writes of the guest are in it.
func (s *snapshot) swap(ctx context.Context) error {
	if s.disk == nil {
		return nil
	}
	if err := s.disk.insert(ctx); err != nil {
		return err
	}
	s.setDisk(s.disk.path)
	return nil
}

// complete copies the rest of memory, and the devices.
func (s *snapshot) complete(ctx context.Context) error {
	if err := s.monitor.do(ctx, "migrate-continue", map[string]string{"state": statusPreSwitchover}, nil); err != nil {
		return err
	}
	return s.stream.await(ctx, func(now migration) error {
		s.report.Rounds = max(s.report.Rounds, now.RAM.Rounds)
		return nil
	}, statusCompleted)
}

func (s *snapshot) goOn(ctx context.Context) error {
	if s.spec.End {
		return nil
	}
	return s.proceed(ctx)
}

// keep completes the image: it writes the record last.
func (s *snapshot) keep(ctx context.Context) error {
	var err error
	if s.report.StateBytes, s.report.DataBytes, err = s.stream.finish(ctx); err != nil {
		return err
	}
	s.report.Pause = s.pauses.total()
	for _, f := range s.files() {
		if s.spec.Durable {
			err = errors.Join(err, f.Sync())
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("sync image: %w", err)
	}
	spec, shape := s.guest.spec, s.hardware.shape()
	spec.Disk, spec.Restore, spec.CPUs, spec.MemoryMB = s.frozen, "", shape.CPUs, shape.MemoryMB
	hardware, err := json.Marshal(s.hardware)
	if err != nil {
		return fmt.Errorf("encode hardware: %w", err)
	}
	im := machine.Image{
		Engine: s.engine.Name(), Spec: spec, TakenAt: time.Now().UTC(), Hardware: hardware, Report: s.report,
	}
	s.freeze()
	if err := im.Write(s.spec.Dir, s.spec.Durable); err != nil || !s.spec.Durable {
		return err
	}
	return machine.Sync(s.spec.Dir) // the directory entries
}

func (s *snapshot) end(context.Context) error {
	if !s.spec.End {
		return nil
	}
	return s.Kill()
}

// abandon continues the guest and removes the files, in that order.
func (s *snapshot) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), undoWait)
	defer cancel()
	log := s.engine.log.With("machine", s.guest.spec.ID)
	if s.begun {
		if err := s.settle(ctx); err != nil && !s.isOver(err) {
			log.Error("continue guest after failed snapshot", "err", err)
		}
	}
	if s.stream != nil {
		s.stream.close()
	}
	if s.disk != nil {
		if err := s.disk.undo(ctx); err != nil && !s.isOver(err) {
			log.Error("remove overlay of failed snapshot", "disk", s.Disk(), "err", err)
		}
	}
	if err := s.tidy(); err != nil && !s.isOver(err) {
		log.Warn("unmount files of failed snapshot from the machine's jail", "err", err)
	}
	for _, f := range s.files() {
		f.Close()
	}
	if s.made {
		if err := os.RemoveAll(s.spec.Dir); err != nil {
			log.Warn("remove files of failed snapshot", "err", err)
		}
	}
}

// explain returns the root cause of a failed snapshot.
func (s *snapshot) explain(err error) error {
	switch {
	case s.isOver(err):
		return fmt.Errorf("snapshot: %w", machine.Gone(s.Dir.Path))
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("snapshot: %w", machine.FullDisk(filepath.Dir(s.spec.Dir)))
	}
	return fmt.Errorf("snapshot: %w", err)
}
