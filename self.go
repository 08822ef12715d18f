package holt

import (
	"path"
	"strings"
	"time"
)

// Self is a computer as it sees itself at http://holt.internal/v1/self. Its programs are untrusted, so it does not
// contain the tenant, who paused or woke the computer, its parent, or paths of the host.
type Self struct {
	ID         ComputerID    `json:"id"`
	Name       string        `json:"name"`
	Template   string        `json:"template"`
	State      ComputerState `json:"state"`
	CPUs       int           `json:"cpus"`
	MemoryMB   int           `json:"memory_mb"`
	DiskSizeMB int           `json:"disk_size_mb"`
	Workspace  string        `json:"workspace"`
	CreatedAt  time.Time     `json:"created_at"`
	StartedAt  *time.Time    `json:"started_at,omitempty"`
	Fork       bool          `json:"fork,omitempty"` // it was forked from another computer
	Job        JobID         `json:"job,omitempty"`
}

// SelfOf returns what a computer may see of itself. The path of a recipe is reduced to its file name.
func SelfOf(c Computer) Self {
	template := c.Template
	if strings.Contains(template, "/") {
		template = path.Base(template)
	}
	return Self{
		ID: c.ID, Name: c.Name, Template: template, State: c.State, CPUs: c.CPUs, MemoryMB: c.MemoryMB, DiskSizeMB: c.DiskSizeMB,
		Workspace: c.Workspace, CreatedAt: c.CreatedAt, StartedAt: c.StartedAt, Fork: c.Parent != nil, Job: c.Job,
	}
}

// OwnArtifact is how a computer may publish a file of its own: into a bucket of what computers publish, below its name, so that
// it cannot take the place of other artifacts.
type OwnArtifact struct {
	Path OSString          `json:"path"`
	Name string            `json:"name,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
}

// Published is what a computer is told of an artifact that it has published.
type Published struct {
	ID     ArtifactID    `json:"id"`
	Bucket string        `json:"bucket"`
	Name   string        `json:"name"`
	State  ArtifactState `json:"state"`
	Size   int64         `json:"size"`
	SHA256 string        `json:"sha256,omitempty"`
}

// PublishedOf returns what a computer is told of an artifact.
func PublishedOf(a Artifact) Published {
	return Published{a.ID, a.Bucket, a.Name, a.State, a.Size, a.SHA256}
}
