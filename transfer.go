package holt

// TransferReport is the result of an import or an export.
type TransferReport struct {
	Entries   int64     `json:"entries" doc:"number of files, directories and links"`
	Bytes     int64     `json:"bytes" doc:"bytes of file content without holes"`
	Devices   int64     `json:"devices,omitempty" doc:"number of device nodes that were left out"`
	LeftOut   OSStrings `json:"left_out,omitempty" doc:"their paths, at most 100"`
	ElapsedMS float64   `json:"elapsed_ms"`
}

// ImportSpec configures an import.
type ImportSpec struct {
	Path    string // absolute, a directory in the workspace; created if needed
	Owner   bool   // keep numeric owners; otherwise files belong to agent
	Devices bool   // include device nodes
	SetID   bool   // keep set-user-id and set-group-id bits
}

// ExportSpec configures an export.
type ExportSpec struct {
	Path    string // absolute, a directory in the workspace
	At      string // a checkpoint; empty: the current state
	Devices bool   // include device nodes
	SetID   bool   // keep set-user-id and set-group-id bits
}

// Usage is the disk use of a directory with everything below it. A file with
// several names counts once.
type Usage struct {
	Path      OSString `json:"path" doc:"absolute, in the workspace"`
	Files     int64    `json:"files" doc:"everything except directories"`
	Dirs      int64    `json:"dirs"`
	Bytes     int64    `json:"bytes" doc:"sum of the sizes of files"`
	Allocated int64    `json:"allocated" doc:"stored bytes, without holes"`
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
	Remove OSStrings             `json:"remove,omitempty" doc:"names; a missing tag is not an error"`
}

// Quota limits a workspace. Zero: no limit.
type Quota struct {
	Bytes int64 `json:"bytes,omitempty" minimum:"0" doc:"stored bytes, without holes; bytes shared by two files count twice"`
	Files int64 `json:"files,omitempty" minimum:"0" doc:"number of inodes, including directories"`
}
