package holt

import "time"

// Workspace is a durable file system: the working directory of a computer. It can
// also be mounted on the host.
type Workspace struct {
	ID        WorkspaceID `json:"id"`
	Name      string      `json:"name" doc:"unique among the tenant's workspaces; a DNS label"`
	CreatedAt time.Time   `json:"created_at"`
	Computer  string      `json:"computer,omitempty" doc:"name of the computer that uses it"`
	Mounts    []Mount     `json:"mounts,omitempty" doc:"host directories where it is mounted"`
	Files     int64       `json:"files" doc:"regular files, including the two start-up files of a new workspace, which ls does not list; the quota counts all inodes"`
	Bytes     int64       `json:"bytes" doc:"bytes of file content"`
	Parent    *ForkPoint  `json:"parent,omitempty" doc:"origin of a fork"`
	Quota     Quota       `json:"quota,omitzero" doc:"its quota"`
	Tenant    string      `json:"tenant,omitempty" doc:"tenant that owns it; a fork belongs to the tenant of its parent"`
	Packed    Packed      `json:"packed,omitzero" doc:"its share of the archive; not in lists"`
}

// Packed is a workspace's share of the archive.
type Packed struct {
	Bytes   int64 `json:"bytes" doc:"bytes of content in the archive, including checkpoints"`
	Stored  int64 `json:"stored" doc:"compressed size of their chunks; chunks shared by workspaces count for each"`
	Waiting int64 `json:"waiting" doc:"bytes of the journal that are not packed yet"`
}

// Archive describes the archive of a daemon. Sizes are in bytes.
type Archive struct {
	Place   string  `json:"place" doc:"directory of the packs"`
	Spaces  int64   `json:"spaces" doc:"number of workspaces, snapshots and disks in it"`
	Chunks  int64   `json:"chunks"`
	Packs   int64   `json:"packs"`
	Content int64   `json:"content" doc:"total size of the content in packs"`
	Unique  int64   `json:"unique" doc:"the same without duplicates"`
	Stored  int64   `json:"stored" doc:"size of the packs, including garbage"`
	Garbage int64   `json:"garbage" doc:"the part of stored that a collection will remove"`
	Ratio   float64 `json:"ratio" doc:"content divided by stored bytes without garbage; 0 if the archive is empty"`
	Waiting int64   `json:"waiting" doc:"bytes in journals of open workspaces that are not packed yet"`
	Cached  int64   `json:"cached,omitempty" doc:"local disk space of the archive's cache"`
}

// ArchiveReport is the result of a check of the archive. Problems is empty if there are none.
type ArchiveReport struct {
	Chunks   int64    `json:"chunks" doc:"chunks that were read and verified"`
	Bytes    int64    `json:"bytes" doc:"bytes of content in them"`
	Problems []string `json:"problems"`
}

// Collected is the result of a garbage collection of the archive.
type Collected struct {
	Packs    int   `json:"packs" doc:"number of removed packs"`
	Repacked int   `json:"repacked" doc:"number of removed packs whose live chunks were moved"`
	Freed    int64 `json:"freed" doc:"bytes by which the store shrank"`
}

// Mount is a host directory where a workspace is mounted.
type Mount struct {
	Dir      string `json:"dir"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// HostMount is a mount with its workspace.
type HostMount struct {
	Mount
	WorkspaceID WorkspaceID `json:"workspace_id"`
	Workspace   string      `json:"workspace" doc:"its name"`
	Tenant      string      `json:"tenant,omitempty" doc:"owner"`
}

// WorkspaceUpdate changes a workspace.
type WorkspaceUpdate struct {
	Name string `json:"name" minLength:"1" maxLength:"63" doc:"the new name, a DNS label; the id, the mounts and the computer do not change"`
}

// QueryResult is the result of a SQL query.
type QueryResult struct {
	Columns   []string `json:"columns"`
	Rows      [][]any  `json:"rows" doc:"each value is a string, a number or null; bytes that are not UTF-8 are base64 in {\"base64\":…}"`
	Truncated bool     `json:"truncated,omitempty" doc:"the result was cut at the row limit"`
	ElapsedMS float64  `json:"elapsed_ms"`
}

// CheckReport is the result of a check of a workspace. Problems is empty if there
// are none.
type CheckReport struct {
	Inodes   int64    `json:"inodes"`
	Entries  int64    `json:"entries"`
	Extents  int64    `json:"extents"`
	Bytes    int64    `json:"bytes" doc:"bytes of content whose checksums were verified, including checkpoints"`
	Problems []string `json:"problems"`
}

// Verdict is the result of one check of doctor.
type Verdict string

// The verdicts.
const (
	VerdictOK   Verdict = "ok"
	VerdictWarn Verdict = "warn" // works, but not at its best
	VerdictBad  Verdict = "bad"  // must be fixed before holt works
)

// Finding is one line of holt doctor: what was checked, what was found, and
// what to do.
type Finding struct {
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Found   string   `json:"found"`
	Do      string   `json:"do,omitempty"`
	Install []string `json:"install,omitempty" doc:"Debian packages that fix it"`
}
