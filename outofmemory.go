package holt

import (
	"fmt"
	"strings"
)

// OutOfMemory says that the kernel of a computer killed processes because memory ran out.
type OutOfMemory struct {
	LimitMB int      `json:"limit_mb,omitempty" doc:"memory limit of all its processes, MiB; the rest of the computer's memory is reserved for the system"`
	Killed  []string `json:"killed,omitempty" doc:"names of killed processes, from the kernel's log, at most 8"`
	Count   int      `json:"count" doc:"number of killed processes"`
	Raise   string   `json:"raise,omitempty" doc:"the command that doubles the computer's memory"`
}

// String describes the event in a sentence.
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
