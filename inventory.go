package holt

import "time"

// Inventory is what is installed in a computer, what runs there, and what files
// its root disk has where people put things, as its guest tells it.
type Inventory struct {
	At        time.Time  `json:"at"`
	Packages  []Package  `json:"packages"`
	Processes []Process  `json:"processes"`
	Ports     []Port     `json:"ports"`
	RootFiles []FileInfo `json:"root_files,omitempty" doc:"none: see no_files"`
	Unread    OSStrings  `json:"unread,omitempty" doc:"directories among them that have more in them than was listed"`
	NoFiles   string     `json:"no_files,omitempty" doc:"why they are not listed"`
	Omitted   int        `json:"omitted,omitempty" doc:"what of them is more than was listed"`
}

// MostListed is how many packages, processes, ports and files an inventory lists of each.
const MostListed = 20_000

// Package is one that is installed, as dpkg has it.
type Package struct {
	Name    string `json:"name"`
	Arch    string `json:"arch,omitempty"`
	Version string `json:"version"`
}

// Process is one that runs. A fork's has the same numbers as the one that it was.
type Process struct {
	PID     int      `json:"pid"`
	PPID    int      `json:"ppid"`
	Start   int64    `json:"start" doc:"when it began, clock ticks since the machine's boot; with the pid it tells processes apart"`
	User    string   `json:"user"`
	Command OSString `json:"command" doc:"its arguments with a blank between them, at most 512 bytes"`
}

// Port is one that something listens at.
type Port struct {
	Protocol string `json:"protocol" enum:"tcp,udp"`
	Address  string `json:"address" doc:"IP address"`
	Port     int    `json:"port"`
	PID      int    `json:"pid,omitempty" doc:"who listens, if that could be told"`
	Process  string `json:"process,omitempty" doc:"its name"`
}

// DiffSide is what one side of a comparison is.
type DiffSide struct {
	Computer  string     `json:"computer"`
	Snapshot  SnapshotID `json:"snapshot,omitempty" doc:"absent: the computer as it is now"`
	Name      string     `json:"name,omitempty" doc:"of the snapshot, if it has one"`
	Workspace string     `json:"workspace"`
	At        *time.Time `json:"at,omitempty" doc:"when its packages, processes, ports and files of the root disk were listed; for a snapshot of a fork just after it, else before"`
	Unlisted  string     `json:"unlisted,omitempty" doc:"why they were not"`
}

// ComputerDiff says what must change in one computer or snapshot to make it another.
type ComputerDiff struct {
	From      DiffSide      `json:"from"`
	To        DiffSide      `json:"to"`
	Files     FilesDiff     `json:"files"`
	RootFiles RootFilesDiff `json:"root_files"`
	Packages  PackageDiff   `json:"packages"`
	Processes ProcessesDiff `json:"processes"`
	Ports     PortsDiff     `json:"ports"`
	Unlisted  bool          `json:"unlisted,omitempty" doc:"files of the root disk, packages, processes and ports were not compared; a side says why"`
	Omitted   int           `json:"omitted,omitempty" doc:"files of the root disk, packages, processes and ports that were not looked at, since a guest has too many"`
}

// FilesDiff is what differs in the workspaces.
type FilesDiff struct {
	Counts    Counts   `json:"counts"`
	Changes   []Change `json:"changes" nullable:"false"`
	Omitted   int      `json:"omitted,omitempty" doc:"changes that are counted, not listed"`
	Unrelated string   `json:"unrelated,omitempty" doc:"why files were not compared"`
}

// RootFilesDiff is what differs in the files of the root disks, where people put
// what no package owns. They are told apart by size, time, mode and owner; what is in
// them is not read.
type RootFilesDiff struct {
	Counts   Counts    `json:"counts"`
	Changes  []Change  `json:"changes" nullable:"false"`
	Omitted  int       `json:"omitted,omitempty" doc:"changes that are counted, not listed"`
	Unread   OSStrings `json:"unread,omitempty" doc:"directories in either that have more in them than was looked at, at most 1000 of them: what only one has there is not told"`
	Unlisted string    `json:"unlisted,omitempty" doc:"why they were not compared, where all else was"`
}

// PackageDiff is what differs in what is installed.
type PackageDiff struct {
	Changes []PackageChange `json:"changes" nullable:"false"`
	Omitted int             `json:"omitted,omitempty"`
}

// PackageChange is one package that is not the same.
type PackageChange struct {
	Name   string `json:"name"`
	Arch   string `json:"arch,omitempty"`
	Before string `json:"before,omitempty" doc:"version; absent: it was not installed"`
	After  string `json:"after,omitempty" doc:"version; absent: it is not installed"`
}

// ProcessesDiff is what differs in what runs.
type ProcessesDiff struct {
	Gone    []Process `json:"gone" nullable:"false"`
	Came    []Process `json:"came" nullable:"false"`
	Same    int       `json:"same"`
	Omitted int       `json:"omitted,omitempty"`
}

// PortsDiff is what differs in what listens.
type PortsDiff struct {
	Gone    []Port `json:"gone" nullable:"false"`
	Came    []Port `json:"came" nullable:"false"`
	Same    int    `json:"same"`
	Omitted int    `json:"omitted,omitempty"`
}
