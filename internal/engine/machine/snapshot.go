package machine

import (
	"context"
	"path/filepath"
	"time"

	"holt"
)

// SnapshotSpec describes a snapshot of a running machine. Paths are absolute.
type SnapshotSpec struct {
	// Dir is the directory of the new [Image]: it must not exist, and gets mode 0700.
	Dir string
	// Disk is the path of the machine's new root disk, an overlay on the current
	// one, which is then frozen: nothing may write to it again. It is empty exactly
	// if the machine has no disk. If snapshot and machine are interrupted and a
	// file exists at Disk, it is the machine's disk: it is created atomically, with
	// the content of the disk below it.
	Disk string
	// Held is called while the guest's processors are stopped and disk and memory
	// copies are complete: later input to a port is not in the image. An error
	// abandons the snapshot without effect on the guest. It must return within 10
	// s, and the guest is stopped until then. May be nil.
	Held func(context.Context) error `json:"-"`
	// End ends the machine once the image is complete.
	End bool
	// Durable makes the image survive a power loss before Snapshot returns and
	// before End ends the machine.
	Durable bool
	// MaxRounds limits how often memory that the guest has changed is copied again
	// while it runs, before its processors are stopped to copy the rest. An engine
	// may use fewer. Default: 24.
	MaxRounds int
	// Pause is the target for how long the guest is stopped to copy the rest of its
	// memory. It is not a limit: see MaxRounds. Default: 10 ms.
	Pause time.Duration
}

// Defaults of a [SnapshotSpec].
const (
	defaultRounds = 24
	defaultPause  = 10 * time.Millisecond
)

// WithDefaults returns the spec with defaults, or InvalidArgument if it is
// invalid for every engine.
func (s SnapshotSpec) WithDefaults() (SnapshotSpec, error) {
	for _, path := range []string{s.Dir, s.Disk} {
		if path != "" && !filepath.IsAbs(path) {
			return s, holt.Errorf(holt.InvalidArgument, "snapshot path %q is not absolute", path)
		}
	}
	if s.Dir == "" || s.MaxRounds < 0 || s.Pause < 0 {
		return s, holt.Errorf(holt.InvalidArgument, "a snapshot needs a directory and limits that are not negative")
	}
	if s.MaxRounds == 0 {
		s.MaxRounds = defaultRounds
	}
	if s.Pause == 0 {
		s.Pause = defaultPause
	}
	if s.Held == nil {
		s.Held = func(context.Context) error { return nil }
	}
	return s, nil
}

// SnapshotReport describes a snapshot that was taken.
type SnapshotReport struct {
	// Pause is how long the guest's processors were stopped, in all; if the machine
	// was ended, until the copy was complete.
	Pause time.Duration `json:"pause"`
	// Rounds is how often memory was copied, including the first full copy.
	Rounds int `json:"rounds"`
	// Throttle is the last percentage of time for which the guest's processors were
	// slowed down, because they changed memory faster than it could be copied.
	Throttle int `json:"throttle"`
	// Forced: the rounds were exhausted, and the guest was stopped to copy the rest.
	Forced bool `json:"forced"`
	// MemoryBytes is the guest's memory, DataBytes the part stored in the image
	// (the rest is zeros), StateBytes everything other than memory.
	MemoryBytes int64 `json:"memory_bytes"`
	DataBytes   int64 `json:"data_bytes"`
	StateBytes  int64 `json:"state_bytes"`
}
