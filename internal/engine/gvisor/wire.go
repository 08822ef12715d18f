package gvisor

import (
	"holt"
	"holt/internal/engine/machine"
)

// KeeperName is argv[0] of a keeper.
const KeeperName = "holt-sandbox"

// Names of files in a machine's directory.
const (
	KeeperSocket = "keeper.sock"
	EndFile      = "ended" // a [machine.EndKind]
	logFile      = "keeper.log"
)

// DebugEnv names a pattern of files for gVisor's debug logs, for developers of holt.
const DebugEnv = "HOLT_GVISOR_DEBUG"

// Descriptors of a keeper, besides its standard input, from which it reads a [Launch].
const (
	LockFD   = 3 // the machine's lock
	ReportFD = 4 // a pipe: an [Answer] once the sockets accept connections
)

// Launch is what a keeper is told to run.
type Launch struct {
	Spec  machine.Spec `json:"spec"`
	Guest string       `json:"guest"` // directory with the program holt-guest
}

// Hardware is what a memory image depends on besides its files.
type Hardware struct {
	GVisor string `json:"gvisor"` // [Version]
	CPU    string `json:"cpu"`    // hash of the processor's features
}

// Request is a request to a keeper: one line of JSON on a connection to its
// socket, answered by one line, except for a snapshot: that is answered when the
// machine stands still, awaits another Request with Op "go on", and is answered
// again at its end. If the connection ends before, the snapshot is abandoned.
type Request struct {
	Op       string                `json:"op"` // see the constants
	Snapshot *machine.SnapshotSpec `json:"snapshot,omitempty"`
}

// The operations of a [Request].
const (
	OpDisk     = "disk"     // answers the path of the current root disk
	OpSnapshot = "snapshot" // see [machine.Machine]
	OpGoOn     = "go on"
	OpPower    = "power" // presses the power button
)

// Answer answers a [Request].
type Answer struct {
	Error  *holt.Error            `json:"error,omitempty"`
	Disk   string                 `json:"disk,omitempty"`
	Report machine.SnapshotReport `json:"report"`
}
