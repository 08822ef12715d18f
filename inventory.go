package holt

import "time"

// Inventory lists packages, processes, ports and unpackaged files of the root
// disk of a computer, as its guest reports them.
type Inventory struct {
	At        time.Time  `json:"at"`
	Packages  []Package  `json:"packages"`
	Processes []Process  `json:"processes"`
	Ports     []Port     `json:"ports"`
	RootFiles []FileInfo `json:"root_files,omitempty" doc:"empty: see no_files"`
	Unread    OSStrings  `json:"unread,omitempty" doc:"directories that are not listed completely"`
	NoFiles   string     `json:"no_files,omitempty" doc:"why files are not listed"`
	Omitted   int        `json:"omitted,omitempty" doc:"number of entries that are not listed"`
}

// MostListed is how many packages, processes, ports and files an inventory lists, each.
const MostListed = 20_000

// Package is an installed package, as dpkg reports it.
type Package struct {
	Name    string `json:"name"`
	Arch    string `json:"arch,omitempty"`
	Version string `json:"version"`
}

// Process is a running process. In a fork it has the same PID.
type Process struct {
	PID     int      `json:"pid"`
	PPID    int      `json:"ppid"`
	Start   int64    `json:"start" doc:"start time in clock ticks since boot; identifies a process together with the pid"`
	User    string   `json:"user"`
	Command OSString `json:"command" doc:"arguments separated by spaces, at most 512 bytes"`
}

// Port is a listening port.
type Port struct {
	Protocol string `json:"protocol" enum:"tcp,udp"`
	Address  string `json:"address" doc:"IP address"`
	Port     int    `json:"port"`
	PID      int    `json:"pid,omitempty" doc:"listening process, if known"`
	Process  string `json:"process,omitempty" doc:"its name"`
}

// DiffSide is one side of a comparison.
type DiffSide struct {
	Computer  string     `json:"computer"`
	Snapshot  SnapshotID `json:"snapshot,omitempty" doc:"absent: the current state"`
	Name      string     `json:"name,omitempty" doc:"name of the snapshot, if it has one"`
	Workspace string     `json:"workspace"`
	At        *time.Time `json:"at,omitempty" doc:"when packages, processes, ports and root disk files were listed: just before the snapshot, or just after it for one of a fork"`
	Unlisted  string     `json:"unlisted,omitempty" doc:"why they were not listed"`
}

// ComputerDiff lists the differences between two computers or snapshots.
type ComputerDiff struct {
	From      DiffSide      `json:"from"`
	To        DiffSide      `json:"to"`
	Files     FilesDiff     `json:"files"`
	RootFiles RootFilesDiff `json:"root_files"`
	Packages  PackageDiff   `json:"packages"`
	Processes ProcessesDiff `json:"processes"`
	Ports     PortsDiff     `json:"ports"`
	Unlisted  bool          `json:"unlisted,omitempty" doc:"root disk files, packages, processes and ports were not compared; from or to has the reason"`
	Omitted   int           `json:"omitted,omitempty" doc:"root disk files, packages, processes and ports that were not compared because there are too many"`
}

// FilesDiff lists differences between workspaces.
type FilesDiff struct {
	Counts    Counts   `json:"counts"`
	Changes   []Change `json:"changes" nullable:"false"`
	Omitted   int      `json:"omitted,omitempty" doc:"number of changes that are not listed"`
	Unrelated string   `json:"unrelated,omitempty" doc:"why the files were not compared"`
}

// RootFilesDiff lists differences between unpackaged files of the root disks.
// Files are compared by size, time, mode and owner, not by content.
type RootFilesDiff struct {
	Counts   Counts    `json:"counts"`
	Changes  []Change  `json:"changes" nullable:"false"`
	Omitted  int       `json:"omitted,omitempty" doc:"number of changes that are not listed"`
	Unread   OSStrings `json:"unread,omitempty" doc:"directories that were not compared completely, at most 1000"`
	Unlisted string    `json:"unlisted,omitempty" doc:"why root disk files were not compared"`
}

// PackageDiff lists differences between installed packages.
type PackageDiff struct {
	Changes []PackageChange `json:"changes" nullable:"false"`
	Omitted int             `json:"omitted,omitempty"`
}

// PackageChange is one package that differs.
type PackageChange struct {
	Name   string `json:"name"`
	Arch   string `json:"arch,omitempty"`
	Before string `json:"before,omitempty" doc:"version; absent: not installed"`
	After  string `json:"after,omitempty" doc:"version; absent: not installed"`
}

// ProcessesDiff lists differences between running processes.
type ProcessesDiff struct {
	Gone    []Process `json:"gone" nullable:"false"`
	Came    []Process `json:"came" nullable:"false"`
	Same    int       `json:"same"`
	Omitted int       `json:"omitted,omitempty"`
}

// PortsDiff lists differences between listening ports.
type PortsDiff struct {
	Gone    []Port `json:"gone" nullable:"false"`
	Came    []Port `json:"came" nullable:"false"`
	Same    int    `json:"same"`
	Omitted int    `json:"omitted,omitempty"`
}
