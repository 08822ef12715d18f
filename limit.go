package holt

import "errors"

// DefaultTenant is whose everything is that nobody else's token made.
const DefaultTenant = "default"

// MaxTenants is how many tenants can have limits.
const MaxTenants = 10000

// mostLimit bounds what is given in milliseconds and MiB: 278 years, 8 EiB.
const mostLimit = 1<<43 - 1

// Limit is what the computers of a tenant may have together, and what they have now. 0: no limit.
type Limit struct {
	Tenant       string    `json:"tenant"`
	MaxComputers int       `json:"max_computers" doc:"whatever their state; 0: no limit"`
	MaxRunning   int       `json:"max_running" doc:"that are neither paused nor stopped; 0: no limit"`
	MaxMemoryMB  int64     `json:"max_memory_mb" doc:"of those that run, MiB; 0: no limit"`
	MaxDiskMB    int64     `json:"max_disk_mb" doc:"sizes of all root disks and of the workspaces that were made with computers, MiB; 0: no limit"`
	MaxRunMS     int64     `json:"max_run_ms" doc:"how long one may run without being paused or stopped, milliseconds; then it is paused; 0: no limit"`
	Used         TenantUse `json:"used"`
}

// TenantUse is what the computers of a tenant have now.
type TenantUse struct {
	Computers int   `json:"computers"`
	Running   int   `json:"running" doc:"that are neither paused nor stopped"`
	MemoryMB  int64 `json:"memory_mb" doc:"of those that run, MiB"`
	DiskMB    int64 `json:"disk_mb" doc:"sizes of all root disks and of the workspaces that were made with computers, MiB"`
}

// LimitReached is the detail of a [TooMany] error that a limit of a tenant is reached.
type LimitReached struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit" enum:"max_computers,max_running,max_memory_mb,max_disk_mb"`
	Max    int64  `json:"max"`
	Used   int64  `json:"used" doc:"without what was asked for"`
	Asked  int64  `json:"asked" doc:"how much more"`
}

// NoMemory is the detail of a [TooMany] error that the host has no memory for a machine: what it asks for and what
// it would take with that, what is left, and what one could ask for if nothing else ran.
type NoMemory struct {
	AskedMB int64 `json:"asked_mb"`
	NeedMB  int64 `json:"need_mb"`
	LeftMB  int64 `json:"left_mb"`
	MostMB  int64 `json:"most_mb"`
}

// LacksMemory says whether an error is that the host has no memory for a machine.
func LacksMemory(err error) (full NoMemory, ok bool) {
	var e *Error
	if errors.As(err, &e) {
		full, ok = e.Detail.(NoMemory)
	}
	return full, ok
}

// LimitChange says what to change of a tenant's limits. What is absent stays as it is; 0 takes a limit away.
type LimitChange struct {
	MaxComputers *int   `json:"max_computers,omitempty" minimum:"0" doc:"whatever their state"`
	MaxRunning   *int   `json:"max_running,omitempty" minimum:"0" doc:"that are neither paused nor stopped"`
	MaxMemoryMB  *int64 `json:"max_memory_mb,omitempty" minimum:"0" doc:"of those that run, MiB"`
	MaxDiskMB    *int64 `json:"max_disk_mb,omitempty" minimum:"0" doc:"sizes of all root disks and of the workspaces that were made with computers, MiB"`
	MaxRunMS     *int64 `json:"max_run_ms,omitempty" minimum:"0" doc:"how long one may run without being paused or stopped, milliseconds"`
}

// Apply changes l. InvalidArgument: nothing is changed, or a limit is below 0 or above what can be counted.
func (c LimitChange) Apply(l *Limit) error {
	if c == (LimitChange{}) {
		return Errorf(InvalidArgument, "no change is given").WithHint("give at least one limit, as max_computers; 0 takes one away")
	}
	set := func(to, from *int64) bool {
		if from != nil {
			*to = *from
		}
		return *to >= 0 && *to <= mostLimit
	}
	number := func(to, from *int) bool {
		if from != nil {
			*to = *from
		}
		return *to >= 0
	}
	if !number(&l.MaxComputers, c.MaxComputers) || !number(&l.MaxRunning, c.MaxRunning) ||
		!set(&l.MaxMemoryMB, c.MaxMemoryMB) || !set(&l.MaxDiskMB, c.MaxDiskMB) || !set(&l.MaxRunMS, c.MaxRunMS) {
		return Errorf(InvalidArgument, "a limit cannot be below 0, nor so high").WithHint("0 takes a limit away")
	}
	return nil
}

// ParseTenant returns s if it can name a tenant: what can name a computer. "" is [DefaultTenant].
func ParseTenant(s string) (string, error) {
	if s == "" {
		return DefaultTenant, nil
	}
	if _, err := ParseName(s); err != nil {
		return "", Errorf(InvalidArgument, "this cannot name a tenant: %w", err).WithHint("give a DNS label, as team-a")
	}
	return s, nil
}
