package workspace

import (
	"context"
	"log/slog"
	"time"

	"holt"
	"holt/journal"
)

// Options say how to open a workspace. The zero value is what production uses.
type Options struct {
	// Log receives named lines for faults (a checksum mismatch, a failed
	// background flush). Nil discards them.
	Log *slog.Logger

	// CacheInodes is how many clean inodes stay in memory. Default 200,000.
	CacheInodes int
	// CacheEntries is how many clean directory entries stay in memory. Default 400,000.
	CacheEntries int

	// SegmentSize is the size at which a journal segment is sealed, bytes. Default 256 MiB.
	SegmentSize int64
	// FlushOps is how many operations are gathered before rows are written to
	// the index. Default 1000.
	FlushOps int
	// FlushInterval is the longest time an operation waits before its rows are
	// written to the index. Default 50 ms.
	FlushInterval time.Duration
	// MaxDirty is how many unwritten rows make operations wait for the index. Default 50,000.
	MaxDirty int

	// Now is the clock for file times. Default time.Now.
	Now func() time.Time
	// Disk is what the journal writes to. Default the real one.
	Disk journal.Disk
	// Fail is called at each failpoint of workspace and journal, for tests. An
	// error makes the step fail there.
	Fail func(point string) error
}

// Stats are a workspace's figures, as of the last answered operation.
type Stats struct {
	Inodes int64 // inodes in use, of every kind, orphans included
	Files  int64 // regular files among them
	Dirs   int64
	Bytes  int64 // sum of the sizes of regular files

	Allocated     int64       // bytes of content that extents refer to
	JournalBytes  int64       // bytes of all segments on disk
	Segments      int         // journal segments on disk
	JournalEnd    journal.Pos // where the next record goes
	JournalSynced journal.Pos // everything before it survives power loss
	Applied       journal.Pos // everything before it is in the index
	CachedInodes  int
	CachedEntries int
	DirtyRows     int
	Orphans       int // unlinked inodes kept for an open mount epoch
}

// Limits bound one user query. Zero fields take the defaults.
type Limits struct {
	Time  time.Duration // default 10 s
	Rows  int           // default 10,000
	Bytes int           // of values in the result; default 16 MiB
}

// Check verifies the whole workspace against its invariants: link counts,
// sizes, extents, references and the checksums of every byte. It returns an
// error only when it could not look; what it found wrong is in the report.
func (w *Workspace) Check(ctx context.Context) (holt.CheckReport, error) {
	return holt.CheckReport{}, holt.Errorf(holt.Unsupported, "check workspace: not built yet")
}

// Query runs one read-only SELECT over the workspace as of now.
func (w *Workspace) Query(ctx context.Context, sql string, limits Limits) (holt.QueryResult, error) {
	return holt.QueryResult{}, holt.Errorf(holt.Unsupported, "query workspace: not built yet")
}
