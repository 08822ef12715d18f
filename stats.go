package holt

import "time"

// ComputerStats is what a computer takes of its host now. Of what only grows (CPUMS, Sent, Received) two
// answers make a rate; CPUMS begins anew with each machine.
type ComputerStats struct {
	ComputerID ComputerID    `json:"computer_id"`
	Computer   string        `json:"computer" doc:"its name"`
	State      ComputerState `json:"state"`
	At         time.Time     `json:"at" doc:"when this was so"`
	IdleSince  *time.Time    `json:"idle_since,omitempty" doc:"since when nothing has used it; absent while something does, and unless it runs"`

	CPUs  int   `json:"cpus"`
	CPUMS int64 `json:"cpu_ms" doc:"processor time of the host that its machine and its network have taken since it was started or resumed, milliseconds"`

	MemoryMB      int   `json:"memory_mb" doc:"what it has, MiB"`
	ResidentBytes int64 `json:"resident_bytes" doc:"what its machine and its network take of the host's memory, with what it shares with its forks"`
	OwnBytes      int64 `json:"own_bytes" doc:"of that, what it shares with nobody"`
	GuestBytes    int64 `json:"guest_bytes,omitempty" doc:"what is in use inside, as it told within the last minute; 0: it did not"`

	DiskSizeMB     int   `json:"disk_size_mb" doc:"MiB"`
	DiskBytes      int64 `json:"disk_bytes" doc:"what the part of its root disk that it has for itself takes of the host's disk"`
	WorkspaceBytes int64 `json:"workspace_bytes" doc:"content of the files in its workspace"`

	Sent     int64 `json:"sent" doc:"bytes of payload since it was made"`
	Received int64 `json:"received" doc:"bytes of payload"`
}
