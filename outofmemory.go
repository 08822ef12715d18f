package holt

import (
	"fmt"
	"strings"
)

// OutOfMemory says that the kernel of a computer killed processes because memory was at an end.
type OutOfMemory struct {
	LimitMB int      `json:"limit_mb,omitempty" doc:"memory limit of its processes together, MiB; the rest of the computer's memory is for the system"`
	Killed  []string `json:"killed,omitempty" doc:"names of the killed processes that the kernel's log still has, at most 8"`
	Count   int      `json:"count" doc:"how many were killed"`
	Raise   string   `json:"raise,omitempty" doc:"the command that gives the computer twice its memory"`
}

// String is a sentence without its end.
func (o OutOfMemory) String() string {
	what := strings.Join(o.Killed, ", ")
	if o.Count > len(o.Killed) || what == "" {
		if what != "" {
			what = " (" + what + ")"
		}
		what = CountOf(o.Count, "process") + what
	}
	s := "out of memory: the kernel killed " + what
	if o.LimitMB > 0 {
		s += fmt.Sprintf("; the limit was %d MiB", o.LimitMB)
	}
	return s
}
