package holt

import "errors"

// DefaultTenant owns everything that was created without a token of another tenant.
const DefaultTenant = "default"

// MaxTenants is how many tenants can have limits.
const MaxTenants = 10000

// mostLimit bounds values in milliseconds (278 years) and MiB (8 EiB).
const mostLimit = 1<<43 - 1

// Limit has the limits for all computers of a tenant together, and their current use. 0: no limit.
type Limit struct {
	Tenant       string    `json:"tenant"`
	MaxComputers int       `json:"max_computers" doc:"number of computers in any state; 0: no limit"`
	MaxRunning   int       `json:"max_running" doc:"number of running computers; 0: no limit"`
	MaxMemoryMB  int64     `json:"max_memory_mb" doc:"memory of running computers, MiB; 0: no limit"`
	MaxDiskMB    int64     `json:"max_disk_mb" doc:"total size of root disks and of workspaces created with computers, MiB; 0: no limit"`
	MaxRunMS     int64     `json:"max_run_ms" doc:"how long a computer may run without a pause or stop before it is paused, milliseconds; 0: no limit"`
	Used         TenantUse `json:"used"`
}

// TenantUse is the current use of a tenant's computers.
type TenantUse struct {
	Computers int   `json:"computers"`
	Running   int   `json:"running" doc:"number of running computers"`
	MemoryMB  int64 `json:"memory_mb" doc:"memory of running computers, MiB"`
	DiskMB    int64 `json:"disk_mb" doc:"total size of root disks and of workspaces created with computers, MiB"`
}

// LimitReached is the detail of a [TooMany] error about a tenant's limit.
type LimitReached struct {
	Tenant string `json:"tenant"`
	Limit  string `json:"limit" enum:"max_computers,max_running,max_memory_mb,max_disk_mb"`
	Max    int64  `json:"max"`
	Used   int64  `json:"used" doc:"current use, without the request"`
	Asked  int64  `json:"asked" doc:"amount of the request"`
}

// NoMemory is the detail of a [TooMany] error about the host's memory: what was requested, what that would need in
// total, what is left, and the most that one computer could get if nothing else ran.
type NoMemory struct {
	AskedMB int64 `json:"asked_mb"`
	NeedMB  int64 `json:"need_mb"`
	LeftMB  int64 `json:"left_mb"`
	MostMB  int64 `json:"most_mb"`
}

// LacksMemory reports whether the error says that the host has too little memory for a machine.
func LacksMemory(err error) (full NoMemory, ok bool) {
	var e *Error
	if errors.As(err, &e) {
		full, ok = e.Detail.(NoMemory)
	}
	return full, ok
}

// LimitChange changes limits of a tenant. Absent limits keep their value; 0 removes a limit.
type LimitChange struct {
	MaxComputers *int   `json:"max_computers,omitempty" minimum:"0" doc:"number of computers in any state"`
	MaxRunning   *int   `json:"max_running,omitempty" minimum:"0" doc:"number of running computers"`
	MaxMemoryMB  *int64 `json:"max_memory_mb,omitempty" minimum:"0" doc:"memory of running computers, MiB"`
	MaxDiskMB    *int64 `json:"max_disk_mb,omitempty" minimum:"0" doc:"total size of root disks and of workspaces created with computers, MiB"`
	MaxRunMS     *int64 `json:"max_run_ms,omitempty" minimum:"0" doc:"how long a computer may run without a pause or stop, milliseconds"`
}

// Apply changes l. Errors: InvalidArgument if no change is given, or a limit is out of range.
func (c LimitChange) Apply(l *Limit) error {
	if c == (LimitChange{}) {
		return Errorf(InvalidArgument, "no change is given").WithHint("set at least one limit, such as max_computers; 0 removes one")
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
		return Errorf(InvalidArgument, "a limit is negative or too large").WithHint("use 0 to remove a limit")
	}
	return nil
}

// ParseTenant returns s if it is a valid name of a tenant, as of a computer. "" is [DefaultTenant].
func ParseTenant(s string) (string, error) {
	if s == "" {
		return DefaultTenant, nil
	}
	if _, err := ParseName(s); err != nil {
		return "", Errorf(InvalidArgument, "invalid tenant: %w", err).WithHint("use a DNS label, such as team-a")
	}
	return s, nil
}
