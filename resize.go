package holt

// ResizeSpec says what shape a computer is to have. Zero fields stay as they are.
type ResizeSpec struct {
	CPUs       int `json:"cpus,omitempty" minimum:"0" doc:"more: at once; fewer: at the next start"`
	MemoryMB   int `json:"memory_mb,omitempty" minimum:"0" doc:"MiB; more: at once, in blocks of 128 MiB, and the rest at the next start; less: at the next start"`
	DiskSizeMB int `json:"disk_size_mb,omitempty" minimum:"0" doc:"MiB; more: at once, and its file system grows with it; less is refused"`
}

// Pending is what of a computer's shape was asked for and is not so yet. Zero fields are as they are.
type Pending struct {
	CPUs     int    `json:"cpus,omitempty"`
	MemoryMB int    `json:"memory_mb,omitempty" doc:"MiB"`
	When     string `json:"when" enum:"start,resume" doc:"resume: when it goes on, as far as that can be added to a computer that runs"`
}

// ResizedComputer is a computer that was resized.
type ResizedComputer struct {
	Computer Computer    `json:"computer" doc:"what it has now; pending says what is to come"`
	Guest    *GuestShape `json:"guest,omitempty" doc:"what its guest says that it uses; absent unless it runs and answers"`
	Note     string      `json:"note,omitempty" doc:"what is not as was asked for yet, and when or why not"`
}

// GuestShape is what a computer's guest says that it uses of what its machine has.
type GuestShape struct {
	CPUs       int `json:"cpus"`
	MemoryMB   int `json:"memory_mb" doc:"MiB"`
	DiskSizeMB int `json:"disk_size_mb" doc:"MiB; 0 when its root file system could not be grown"`
}
