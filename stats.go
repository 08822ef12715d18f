package holt

import "time"

// ComputerStats is the current resource use of a computer on its host. CPUMS, Sent and Received are counters;
// CPUMS starts at 0 with each start or resume.
type ComputerStats struct {
	ComputerID ComputerID    `json:"computer_id"`
	Computer   string        `json:"computer" doc:"its name"`
	State      ComputerState `json:"state"`
	At         time.Time     `json:"at" doc:"time of the measurement"`
	IdleSince  *time.Time    `json:"idle_since,omitempty" doc:"when its last use ended; absent while it is in use or not running"`

	CPUs  int   `json:"cpus"`
	CPUMS int64 `json:"cpu_ms" doc:"host CPU time of its machine and network since it was started or resumed, milliseconds"`

	MemoryMB      int   `json:"memory_mb" doc:"memory size, MiB"`
	ResidentBytes int64 `json:"resident_bytes" doc:"host memory of its machine and network, including memory shared with forks"`
	OwnBytes      int64 `json:"own_bytes" doc:"the part of resident_bytes that is not shared"`
	GuestBytes    int64 `json:"guest_bytes,omitempty" doc:"memory in use inside, reported within the last minute; 0: not reported"`

	DiskSizeMB     int   `json:"disk_size_mb" doc:"MiB"`
	DiskBytes      int64 `json:"disk_bytes" doc:"host disk space of the unshared part of its root disk"`
	WorkspaceBytes int64 `json:"workspace_bytes" doc:"size of the files in its workspace"`

	Sent     int64 `json:"sent" doc:"payload bytes since it was created"`
	Received int64 `json:"received" doc:"payload bytes"`
}
