package holt

import "time"

// Workspace is a durable file system: the working directory of a computer,
// or of a person who mounts it on the host.
type Workspace struct {
	ID        WorkspaceID `json:"id"`
	Name      string      `json:"name" doc:"unique among the tenant's workspaces; a DNS label"`
	CreatedAt time.Time   `json:"created_at"`
	Computer  string      `json:"computer,omitempty" doc:"name of the computer that has it mounted read-write"`
	Mounts    []Mount     `json:"mounts,omitempty" doc:"host directories where it is mounted"`
	Files     int64       `json:"files" doc:"regular files, including the two start-up files of a new workspace, which ls does not list; the quota counts all inodes"`
	Bytes     int64       `json:"bytes" doc:"bytes of file content"`
	Parent    *ForkPoint  `json:"parent,omitempty" doc:"what it was forked from"`
	Quota     Quota       `json:"quota,omitzero" doc:"what bounds it"`
	Tenant    string      `json:"tenant,omitempty" doc:"whose it is; a fork is its parent's"`
	Packed    Packed      `json:"packed,omitzero" doc:"what the archive has of it; not in lists"`
}

// Packed says what the archive has of a workspace.
type Packed struct {
	Bytes   int64 `json:"bytes" doc:"bytes of content, of the present and of checkpoints, that lie in packs"`
	Stored  int64 `json:"stored" doc:"what their chunks take there, compressed; chunks that other workspaces need too count in each"`
	Waiting int64 `json:"waiting" doc:"bytes of the journal that are to be packed and are not yet"`
}

// Archive says what the archive of a daemon holds. Sizes are bytes.
type Archive struct {
	Place   string  `json:"place" doc:"directory of the packs"`
	Spaces  int64   `json:"spaces" doc:"workspaces, kept snapshots and their disks that have something in it"`
	Chunks  int64   `json:"chunks"`
	Packs   int64   `json:"packs"`
	Content int64   `json:"content" doc:"content of all of them together that lies in packs"`
	Unique  int64   `json:"unique" doc:"the same, with what is there several times counted once"`
	Stored  int64   `json:"stored" doc:"what the packs take, garbage included"`
	Garbage int64   `json:"garbage" doc:"of them, what nothing needs any more and a collection will remove"`
	Ratio   float64 `json:"ratio" doc:"content for each byte that is stored and needed; 0 while there is none"`
	Waiting int64   `json:"waiting" doc:"bytes in journals of open workspaces that are to be packed and are not yet"`
	Cached  int64   `json:"cached,omitempty" doc:"what the cache of a far archive takes on the local disk"`
}

// ArchiveReport is what a check of the archive found. It is clean when Problems
// is empty.
type ArchiveReport struct {
	Chunks   int64    `json:"chunks" doc:"chunks that were read and verified"`
	Bytes    int64    `json:"bytes" doc:"bytes of content in them"`
	Problems []string `json:"problems"`
}

// Collected says what a collection of the archive's garbage did.
type Collected struct {
	Packs    int   `json:"packs" doc:"packs that were removed"`
	Repacked int   `json:"repacked" doc:"of them, those whose live chunks were moved first"`
	Freed    int64 `json:"freed" doc:"bytes by which the store shrank"`
}

// Mount is a host directory through which a workspace is used.
type Mount struct {
	Dir      string `json:"dir"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// HostMount is a mount with the workspace that it shows.
type HostMount struct {
	Mount
	WorkspaceID WorkspaceID `json:"workspace_id"`
	Workspace   string      `json:"workspace" doc:"its name"`
	Tenant      string      `json:"tenant,omitempty" doc:"whose it is"`
}

// WorkspaceUpdate says what to change of a workspace.
type WorkspaceUpdate struct {
	Name string `json:"name" minLength:"1" maxLength:"63" doc:"another name, a DNS label; the id stays, and so do its mounts and the computer that has it"`
}

// QueryResult is what a SQL query over a workspace returned.
type QueryResult struct {
	Columns   []string `json:"columns"`
	Rows      [][]any  `json:"rows" doc:"each value is a string, a number or null; bytes that are not UTF-8 are base64 in {\"base64\":…}"`
	Truncated bool     `json:"truncated,omitempty" doc:"the row limit cut the result"`
	ElapsedMS float64  `json:"elapsed_ms"`
}

// CheckReport is what a check of a workspace found. It is clean when Problems
// is empty.
type CheckReport struct {
	Inodes   int64    `json:"inodes"`
	Entries  int64    `json:"entries"`
	Extents  int64    `json:"extents"`
	Bytes    int64    `json:"bytes" doc:"content bytes whose checksums were verified, of the present and of checkpoints"`
	Problems []string `json:"problems"`
}

// Verdict is what doctor thinks of one thing it looked at.
type Verdict string

// The verdicts.
const (
	VerdictOK   Verdict = "ok"
	VerdictWarn Verdict = "warn" // works, but worse than it could
	VerdictBad  Verdict = "bad"  // holt cannot work until this is mended
)

// Finding is one line of holt doctor: what was looked at, what was found, and
// what to do about it.
type Finding struct {
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Found   string   `json:"found"`
	Do      string   `json:"do,omitempty"`
	Install []string `json:"install,omitempty" doc:"Debian packages that would mend it"`
}
