package computer

import (
	"context"
	"fmt"

	"holt"
)

// told completes what a guest says of memory, if it says that it was at an end.
func (l *live) told(o *holt.OutOfMemory) {
	if o != nil {
		l.explain(o)
	}
}

// explain adds to what a guest says of memory that was at an end the command that gives it more.
func (s *Store) explain(o *holt.OutOfMemory, id holt.ComputerID) {
	r, err := s.table.find(context.Background(), string(id))
	switch {
	case err != nil:
	case r.Job != "":
		o.Raise = fmt.Sprintf("holt job run --memory-mb %d", 2*r.MemoryMB)
	default:
		o.Raise = fmt.Sprintf("holt computer resize %s --memory-mb %d", r.Name, 2*r.MemoryMB)
	}
}
