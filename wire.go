package holt

import "time"

// Environment variables.
const (
	// EnvDataDir names the daemon's data directory.
	EnvDataDir = "HOLT_DATA_DIR"
	// EnvSocket names the daemon's unix socket.
	EnvSocket = "HOLT_SOCKET"
	// EnvImageDir names the directory of built images; several daemons may share one.
	EnvImageDir = "HOLT_IMAGE_DIR"
	// EnvEngine is the default engine of holt serve: auto, qemu, gvisor or local.
	EnvEngine = "HOLT_ENGINE"
	// EnvArchive names the directory of the archive's packs, if not below the data directory.
	EnvArchive = "HOLT_ARCHIVE"
	// EnvServer is the server to call: unix:/path, host:port or a URL.
	EnvServer = "HOLT_SERVER"
	// EnvHost is an older name of EnvServer, which takes precedence.
	EnvHost = "HOLT_HOST"
	// EnvToken is the bearer token for EnvServer.
	EnvToken = "HOLT_TOKEN"
	// EnvCAFile names a PEM file with additional root certificates for EnvServer.
	EnvCAFile = "HOLT_CA_FILE"
	// EnvContext names the context to use; it takes precedence over EnvServer.
	EnvContext = "HOLT_CONTEXT"
	// EnvTenant is the tenant that an admin acts for.
	EnvTenant = "HOLT_TENANT"
)

// Page is one page of a list. Next is empty on the last page.
type Page[T any] struct {
	Items []T    `json:"items" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"cursor of the next page"`
}

// PageSpec selects a page of a list.
type PageSpec struct {
	Limit  int    // most items; 0: [MostPerPage]
	Cursor string // Next of the page before; "": the first page
}

// MostPerPage is the maximum number of items on a page.
const MostPerPage = 1000

// Most returns the number of items on the page.
func (p PageSpec) Most() int {
	if p.Limit <= 0 || p.Limit > MostPerPage {
		return MostPerPage
	}
	return p.Limit
}

// LogQuery selects a part of a computer's console log.
type LogQuery struct {
	TailBytes int64 // number of bytes from the end; 0: everything
	Follow    bool  // continue with new output until the context ends
}

// WriteSpec says how to write a file. The zero value keeps mode and owner of an existing file.
type WriteSpec struct {
	Mode    uint32 // permission bits as chmod takes them; 0: an existing file keeps its own, a new one gets NewMode
	NewMode uint32 // permission bits of a new file, less the umask 022; 0: 0644
	User    string // Linux user who will own it; empty: an existing file keeps its owner, a new one gets that of its directory
	Parents bool   // create missing directories above it
}

// umask is removed from the mode of a copied file.
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

// MkdirSpec describes a directory to create.
type MkdirSpec struct {
	Path    OSString `json:"path" doc:"absolute"`
	Mode    uint32   `json:"mode,omitempty" doc:"permission bits; default: 0755 (decimal 493)"`
	User    string   `json:"user,omitempty" doc:"Linux user who owns it; default: the owner of the parent directory, or agent in a world-writable one such as /tmp"`
	Parents bool     `json:"parents,omitempty" doc:"create missing parent directories; an existing directory is not an error"`
}

// SymlinkSpec describes a symbolic link to create. An existing file or link at
// Path is replaced atomically.
type SymlinkSpec struct {
	Path   OSString `json:"path" doc:"absolute"`
	Target OSString `json:"target" minLength:"1" maxLength:"4095" doc:"target of the link; need not exist"`
	User   string   `json:"user,omitempty" doc:"Linux user who owns it; default: the owner of the parent directory, or agent in a world-writable one such as /tmp"`
}

// RenameSpec moves a file inside one computer. An existing file at To is replaced.
type RenameSpec struct {
	From OSString `json:"from" doc:"absolute"`
	To   OSString `json:"to" doc:"absolute"`
}

// SignalSpec says which signal to send to every process of a run.
type SignalSpec struct {
	Signal string `json:"signal" doc:"name of a Linux signal, such as SIGINT"`
}

// WorkspaceSpec says what workspace to create.
type WorkspaceSpec struct {
	Name  string `json:"name" doc:"a DNS label, unique among workspaces"`
	Quota Quota  `json:"quota,omitzero" doc:"default: no limit"`
}

// MountSpec says where on the daemon's host to mount a workspace.
type MountSpec struct {
	Dir      string `json:"dir" doc:"absolute path of an existing, empty directory on the daemon's host"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// QuerySpec is a SQL query on one or several workspaces. With several, every
// table and view also has the column workspace. Zero limits take the defaults.
type QuerySpec struct {
	SQL       string   `json:"sql" doc:"one SELECT statement (SQLite) on files, tags, checkpoints and changes"`
	At        string   `json:"at,omitempty" maxLength:"255" doc:"the checkpoint for workspaces without @CHECKPOINT; default: live"`
	Also      []string `json:"also,omitempty" maxItems:"99" doc:"more workspaces: NAME or NAME@CHECKPOINT"`
	Forks     bool     `json:"forks,omitempty" doc:"include the forks of these workspaces, and their forks"`
	MaxRows   int      `json:"max_rows,omitempty" minimum:"0" doc:"default: 10000"`
	TimeoutMS int64    `json:"timeout_ms,omitempty" minimum:"0" doc:"default: 10000; at most 300000"`
}

// MostQueried is the maximum number of workspaces in one query.
const MostQueried = 100

// Image is a built template, from which root disks of new computers are created.
type Image struct {
	Template  string     `json:"template"`
	Built     bool       `json:"built" doc:"false: not built yet, or changed since the build"`
	Digest    string     `json:"digest,omitempty" doc:"digest of all its inputs"`
	MinDiskMB int        `json:"min_disk_mb,omitempty" doc:"minimum size of a root disk, MiB"`
	Bytes     int64      `json:"bytes,omitempty" doc:"disk space on the host, including boot snapshots"`
	BuiltAt   *time.Time `json:"built_at,omitempty"`
	Computers int        `json:"computers,omitempty" doc:"number of computers that use it, of all daemons that share the image directory"`
	Unbooted  *Shape     `json:"unbooted,omitempty" doc:"shape in which a daemon will boot it, if it was not booted since the build"`
	Ready     []Shape    `json:"ready,omitempty" doc:"shapes with a boot snapshot; new computers of these start from it, others boot"`
}

// Shape is the size of a computer. Zero fields take the defaults.
type Shape struct {
	CPUs     int `json:"cpus,omitempty" minimum:"0" doc:"virtual processors; default: 1"`
	MemoryMB int `json:"memory_mb,omitempty" minimum:"0" doc:"MiB; default: 1024"`
}

// Health describes the running daemon.
type Health struct {
	Status    string    `json:"status" doc:"ok"`
	Version   string    `json:"version" doc:"version of holt"`
	PID       int       `json:"pid" doc:"process id of the daemon on its host"`
	DataDir   string    `json:"data_dir"`
	Engine    string    `json:"engine" doc:"what runs new computers by default: qemu-kvm, qemu-tcg, gvisor or local"`
	StartedAt time.Time `json:"started_at"`
	Running   int       `json:"running" doc:"number of running computers"`
}

// DownAction says what to do with running computers when the daemon ends.
type DownAction string

// The down actions.
const (
	DownStop  DownAction = "stop"  // shut down; the disks are kept
	DownPause DownAction = "pause" // pause; memory and disks are kept
	DownKeep  DownAction = "keep"  // keep running; the next daemon takes them over
)

// DownSpec says how to end the daemon.
type DownSpec struct {
	Computers DownAction `json:"computers,omitempty" enum:"stop,pause,keep" doc:"what to do with running computers; default: stop"`
}

// DownReport is the result of ending the daemon.
type DownReport struct {
	Stopped   []string `json:"stopped" nullable:"false" doc:"names of computers that were stopped"`
	Paused    []string `json:"paused" nullable:"false" doc:"names of computers that were paused"`
	Kept      []string `json:"kept" nullable:"false" doc:"names of computers that keep running"`
	Unmounted []string `json:"unmounted" nullable:"false" doc:"host directories that were unmounted"`
}
