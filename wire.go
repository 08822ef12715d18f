package holt

import "time"

// The names of the places where a door finds the daemon.
const (
	// EnvDataDir names the daemon's data directory.
	EnvDataDir = "HOLT_DATA_DIR"
	// EnvSocket names the daemon's unix socket.
	EnvSocket = "HOLT_SOCKET"
	// EnvImageDir names the directory of built images; several daemons may share one.
	EnvImageDir = "HOLT_IMAGE_DIR"
	// EnvEngine is the engine that holt serve uses: auto, qemu or local.
	EnvEngine = "HOLT_ENGINE"
	// EnvArchive names the directory of the archive's packs, if not below the data directory.
	EnvArchive = "HOLT_ARCHIVE"
	// EnvServer says which daemon is called: unix:/path, host:port or a URL.
	EnvServer = "HOLT_SERVER"
	// EnvHost is an older name of EnvServer, which goes before it.
	EnvHost = "HOLT_HOST"
	// EnvToken is the bearer token for EnvServer.
	EnvToken = "HOLT_TOKEN"
	// EnvCAFile names a PEM file of certificates that EnvServer's may be signed by, besides the system's.
	EnvCAFile = "HOLT_CA_FILE"
	// EnvContext names the context whose server is called; it goes before EnvServer.
	EnvContext = "HOLT_CONTEXT"
	// EnvTenant is the tenant for which an admin calls.
	EnvTenant = "HOLT_TENANT"
)

// Page is one page of a list. An empty Next means that there is no more.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"give this as cursor to get the following page"`
}

// PageSpec says which page of a list is wanted.
type PageSpec struct {
	Limit  int    // most items; 0: [MostPerPage]
	Cursor string // Next of the page before; "": the first page
}

// MostPerPage is how many items a page has at most.
const MostPerPage = 1000

// Most is how many items are wanted.
func (p PageSpec) Most() int {
	if p.Limit <= 0 || p.Limit > MostPerPage {
		return MostPerPage
	}
	return p.Limit
}

// LogQuery says which part of a computer's console log is wanted.
type LogQuery struct {
	TailBytes int64 // only the last so many bytes; 0: everything
	Follow    bool  // go on with what is added, until the context ends
}

// WriteSpec says how to write a file. The zero value keeps what an existing file has, and gives a new one what cp gives it.
type WriteSpec struct {
	Mode    uint32 // permission bits as chmod takes them; 0: an existing file keeps its own, a new one gets NewMode
	NewMode uint32 // permission bits of a new file, less the umask 022; 0: 0644
	User    string // Linux user who will own it; empty: an existing file keeps its owner, a new one gets that of its directory
	Parents bool   // create missing directories above it
}

// umask is what a new file does not get of the mode of the file it was copied from.
const umask = 0o022

// ModeOfNew returns the permission bits that a new file gets.
func (s WriteSpec) ModeOfNew() uint32 {
	switch {
	case s.Mode != 0:
		return s.Mode
	case s.NewMode != 0:
		return s.NewMode &^ umask
	}
	return 0o644
}

// MkdirSpec says how to make a directory.
type MkdirSpec struct {
	Path    OSString `json:"path" doc:"absolute"`
	Mode    uint32   `json:"mode,omitempty" doc:"permission bits; default: 0755 (decimal 493)"`
	User    string   `json:"user,omitempty" doc:"Linux user who will own it; default: the owner of the directory above it, or agent where everybody may make files, as in /tmp"`
	Parents bool     `json:"parents,omitempty" doc:"create missing directories above it; an existing directory is no error"`
}

// SymlinkSpec says how to make a symbolic link. A file or link that stands at
// Path is replaced as one step.
type SymlinkSpec struct {
	Path   OSString `json:"path" doc:"absolute"`
	Target OSString `json:"target" minLength:"1" maxLength:"4095" doc:"what it says; need not be there"`
	User   string   `json:"user,omitempty" doc:"Linux user who will own it; default: the owner of the directory above it, or agent where everybody may make files, as in /tmp"`
}

// RenameSpec moves a file inside one computer. An existing file at To is replaced.
type RenameSpec struct {
	From OSString `json:"from" doc:"absolute"`
	To   OSString `json:"to" doc:"absolute"`
}

// SignalSpec says which signal to send to every process of a run.
type SignalSpec struct {
	Signal string `json:"signal" doc:"name of a Linux signal, as SIGINT"`
}

// WorkspaceSpec says what workspace to create.
type WorkspaceSpec struct {
	Name  string `json:"name" doc:"a DNS label, unique among workspaces"`
	Quota Quota  `json:"quota,omitzero" doc:"bounds it; default: nothing does"`
}

// MountSpec says where on the daemon's host to mount a workspace.
type MountSpec struct {
	Dir      string `json:"dir" doc:"absolute path of an existing, empty directory on the daemon's host"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// QuerySpec is a SQL query over a workspace, or over several: then every table
// and view has a column more, workspace. Zero limits take the defaults.
type QuerySpec struct {
	SQL       string   `json:"sql" doc:"one SELECT statement (SQLite); tables: see the view files"`
	At        string   `json:"at,omitempty" maxLength:"255" doc:"a checkpoint, which files and tags show of workspaces that are named without one; default: live"`
	Also      []string `json:"also,omitempty" maxItems:"99" doc:"more workspaces; NAME@CHECKPOINT: as it was then"`
	Forks     bool     `json:"forks,omitempty" doc:"the forks of these workspaces, and forks of those, too"`
	MaxRows   int      `json:"max_rows,omitempty" minimum:"0" doc:"default: 10000"`
	TimeoutMS int64    `json:"timeout_ms,omitempty" minimum:"0" doc:"default: 10000; at most 300000"`
}

// MostQueried is how many workspaces one query is about at most.
const MostQueried = 100

// Image is a built template: what the root disks of new computers start from.
type Image struct {
	Template  string     `json:"template"`
	Built     bool       `json:"built" doc:"false: a known recipe that was not built yet, or has changed since it was"`
	Digest    string     `json:"digest,omitempty" doc:"of everything that went into it"`
	MinDiskMB int        `json:"min_disk_mb,omitempty" doc:"smallest root disk it fits on, MiB"`
	Bytes     int64      `json:"bytes,omitempty" doc:"what it takes on the host, with the machines that were booted from it and are kept"`
	BuiltAt   *time.Time `json:"built_at,omitempty"`
	Computers int        `json:"computers,omitempty" doc:"how many computers' disks stand on it, of every daemon that shares the images"`
	Unbooted  *Shape     `json:"unbooted,omitempty" doc:"nobody has booted it since it was built; the shape in which a daemon is to"`
	Ready     []Shape    `json:"ready,omitempty" doc:"shapes in which it was booted and is kept: new computers of these go on from there, others boot"`
}

// Shape is what of its host a computer has. Zero fields take the defaults.
type Shape struct {
	CPUs     int `json:"cpus,omitempty" minimum:"0" doc:"virtual processors; default: 1"`
	MemoryMB int `json:"memory_mb,omitempty" minimum:"0" doc:"MiB; default: 1024"`
}

// Health says that the daemon answers, and what it is.
type Health struct {
	Status    string    `json:"status" doc:"ok"`
	Version   string    `json:"version" doc:"of holt"`
	PID       int       `json:"pid" doc:"process id of the daemon on its host"`
	DataDir   string    `json:"data_dir"`
	Engine    string    `json:"engine" doc:"what runs new computers: qemu-kvm, qemu-tcg or local"`
	StartedAt time.Time `json:"started_at"`
	Running   int       `json:"running" doc:"computers that run now"`
}

// DownAction says what becomes of running computers when the daemon ends.
type DownAction string

// The down actions.
const (
	DownStop  DownAction = "stop"  // shut down cleanly; the disks stay
	DownPause DownAction = "pause" // keep memory too
	DownKeep  DownAction = "keep"  // machines go on without the daemon and are adopted again
)

// DownSpec says how to end the daemon.
type DownSpec struct {
	Computers DownAction `json:"computers,omitempty" enum:"stop,pause,keep" doc:"what becomes of running computers; default: stop"`
}

// DownReport says what ended with the daemon.
type DownReport struct {
	Stopped   []string `json:"stopped" nullable:"false" doc:"names of computers that were stopped"`
	Paused    []string `json:"paused" nullable:"false" doc:"names of computers that were paused"`
	Kept      []string `json:"kept" nullable:"false" doc:"names of computers that go on running"`
	Unmounted []string `json:"unmounted" nullable:"false" doc:"host directories that were unmounted"`
}
