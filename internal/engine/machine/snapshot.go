package machine

import (
	"context"
	"path/filepath"
	"time"

	"holt"
)

// SnapshotSpec says how to take a snapshot of a running machine. Paths are absolute.
type SnapshotSpec struct {
	// Dir is where the [Image] is made: absent before, mode 0700 afterwards.
	Dir string
	// Disk is where the machine's new root disk is made, an overlay on the one that
	// it has. From then on that one is frozen: nothing may ever write to it again.
	// Empty exactly if the machine has no disk. Where a snapshot was cut short
	// together with its machine, a file there is the disk: it is made whole, and
	// before anything is written to it the disk under it shows through.
	Disk string
	// Held is called while the guest's processors stand still and its disk and the
	// copy of its memory are complete: what is sent into a port from now on is not in the
	// image. An error abandons the snapshot, and the guest goes on as if nothing had been. It
	// has 10 s; every millisecond is one that the guest stands. Nil: nothing.
	Held func(context.Context) error
	// End ends the machine once the image is complete, instead of letting it go on.
	End bool
	// Durable makes the image survive a power loss before Snapshot returns, and
	// before End ends the machine.
	Durable bool
	// MaxRounds is how often memory that the guest has changed meanwhile is copied
	// again while it runs, before its processors are stopped for whatever is left. An
	// engine may do with fewer. Default: 24.
	MaxRounds int
	// Pause is how long the guest should stand still for the rest of its memory to be
	// copied. It is an aim, not a bound: see MaxRounds. Default: 10 ms.
	Pause time.Duration
}

// Defaults of a [SnapshotSpec].
const (
	defaultRounds = 24
	defaultPause  = 10 * time.Millisecond
)

// WithDefaults returns the spec with what it leaves open, or InvalidArgument if
// no engine could obey it.
func (s SnapshotSpec) WithDefaults() (SnapshotSpec, error) {
	for _, path := range []string{s.Dir, s.Disk} {
		if path != "" && !filepath.IsAbs(path) {
			return s, holt.Errorf(holt.InvalidArgument, "snapshot path %q is not absolute", path)
		}
	}
	if s.Dir == "" || s.MaxRounds < 0 || s.Pause < 0 {
		return s, holt.Errorf(holt.InvalidArgument, "a snapshot needs a directory, and no negative limits")
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

// SnapshotReport says what a snapshot did to the guest and what it left.
type SnapshotReport struct {
	// Pause is how long the guest's processors stood still, in all; of a machine that
	// was ended, until all of it was copied.
	Pause time.Duration `json:"pause"`
	// Rounds is how often memory was copied, the first time all of it.
	Rounds int `json:"rounds"`
	// Throttle is how many percent of their time the guest's processors were held
	// back at last, because they changed memory faster than it could be copied.
	Throttle int `json:"throttle"`
	// Forced: the rounds were used up, and the guest stood for all that was left.
	Forced bool `json:"forced"`
	// MemoryBytes is the guest's memory, DataBytes what of it the image holds (the
	// rest is zeros), StateBytes all that is not memory.
	MemoryBytes int64 `json:"memory_bytes"`
	DataBytes   int64 `json:"data_bytes"`
	StateBytes  int64 `json:"state_bytes"`
}
