package holt

// ResizeSpec is the new shape of a computer. Zero fields keep their value.
type ResizeSpec struct {
	CPUs       int `json:"cpus,omitempty" minimum:"0" doc:"an increase takes effect immediately, a decrease at the next start"`
	MemoryMB   int `json:"memory_mb,omitempty" minimum:"0" doc:"MiB; an increase takes effect immediately in blocks of 128 MiB, the rest and a decrease at the next start"`
	DiskSizeMB int `json:"disk_size_mb,omitempty" minimum:"0" doc:"MiB; an increase takes effect immediately, and the file system grows; a decrease is refused"`
}

// Pending is the part of a resize that has not taken effect yet. Zero fields do not change.
type Pending struct {
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int    `json:"memory_mb,omitempty" doc:"MiB"`
	When     string `json:"when" enum:"start,resume" doc:"start: at the next start; resume: when it is resumed, as far as a running computer can change"`
}

// ResizedComputer is the result of a resize.
type ResizedComputer struct {
	Computer Computer    `json:"computer" doc:"the current shape; pending has the rest"`
	Guest    *GuestShape `json:"guest,omitempty" doc:"the shape that the guest reports; absent unless the computer is running and answers"`
	Note     string      `json:"note,omitempty" doc:"what has not changed yet, with the reason"`
}

// GuestShape is the shape that the guest of a computer reports.
type GuestShape struct {
	CPUs       int `json:"cpus"`
	MemoryMB   int `json:"memory_mb" doc:"MiB"`
	DiskSizeMB int `json:"disk_size_mb" doc:"MiB; 0 if the root file system could not grow"`
}
