package computer

import (
	"context"
	"fmt"

	"holt"
)

// explain adds to what a guest says of memory that was at an end the command that gives it more.
func (s *Store) explain(o *holt.OutOfMemory, id holt.ComputerID) {
	if o == nil {
		return
	}
	r, err := s.table.find(context.Background(), string(id))
	switch {
	case err != nil:
	case r.Job != "":
		o.Raise = fmt.Sprintf("holt job run --memory-mb %d", 2*r.MemoryMB)
	default:
		o.Raise = fmt.Sprintf("holt computer resize %s --memory-mb %d", r.Name, 2*r.MemoryMB)
	}
}
