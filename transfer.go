package holt

// TransferReport says what an import or an export brought over.
type TransferReport struct {
	Entries   int64     `json:"entries" doc:"names that came: files, directories, links"`
	Bytes     int64     `json:"bytes" doc:"of file content; holes do not count"`
	Devices   int64     `json:"devices,omitempty" doc:"device nodes that were left out"`
	LeftOut   OSStrings `json:"left_out,omitempty" doc:"their paths, at most 100"`
	ElapsedMS float64   `json:"elapsed_ms"`
}

// ImportSpec says where an import goes and what of it counts.
type ImportSpec struct {
	Path    string // absolute, of a directory in the workspace; made if it is not there
	Owner   bool   // files belong to the numbers they had; otherwise to the user agent
	Devices bool   // device nodes too
	SetID   bool   // keep set-user-id and set-group-id bits
}

// ExportSpec says what an export holds.
type ExportSpec struct {
	Path    string // absolute, of a directory in the workspace
	At      string // the checkpoint to send; empty: the present
	Devices bool   // device nodes too
	SetID   bool   // keep set-user-id and set-group-id bits
}

// Usage is what a directory takes with everything below it. A file with
// several names counts once, at one of them.
type Usage struct {
	Path      OSString `json:"path" doc:"absolute, in the workspace"`
	Files     int64    `json:"files" doc:"everything that is not a directory"`
	Dirs      int64    `json:"dirs"`
	Bytes     int64    `json:"bytes" doc:"sum of the sizes of files"`
	Allocated int64    `json:"allocated" doc:"bytes that are stored: holes do not count"`
}

// Tag is a user attribute of a file: the extended attribute user.NAME.
type Tag struct {
	Path  OSString `json:"path" doc:"absolute, in the workspace"`
	Name  OSString `json:"name"`
	Value OSString `json:"value"`
}

// TagSpec sets and removes tags of one file.
type TagSpec struct {
	Path   OSString              `json:"path" doc:"absolute, in the workspace"`
	Set    map[OSString]OSString `json:"set,omitempty" doc:"name to value"`
	Remove OSStrings             `json:"remove,omitempty" doc:"names; one that is not there is no error"`
}

// Quota bounds a workspace. Zero is no bound.
type Quota struct {
	Bytes int64 `json:"bytes,omitempty" minimum:"0" doc:"of stored content: holes do not count, a byte that two files share does for each"`
	Files int64 `json:"files,omitempty" minimum:"0" doc:"inodes of every kind, directories too"`
}
