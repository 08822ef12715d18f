package computer

import (
	"fmt"

	"holt"
)

// told completes a report of the guest that memory ran out; nil is none.
func (l *live) told(o *holt.OutOfMemory) {
	if o != nil {
		l.explain(o)
	}
}

// raiseMemory is the command that gives a computer more memory.
func (r record) raiseMemory() string {
	if r.Job != "" {
		return fmt.Sprintf("holt job run --memory-mb %d", 2*r.MemoryMB)
	}
	return fmt.Sprintf("holt computer resize %s --memory-mb %d", r.Name, 2*r.MemoryMB)
}
