package daemon

import (
	"holt"
	"holt/internal/workspace"
)

// noted makes an event of a checkpoint that was taken or deleted.
func (d *Daemon) noted(id holt.WorkspaceID, c workspace.Checkpoint, deleted bool) {
	kind := holt.EventCheckpointCreated
	if deleted {
		kind = holt.EventCheckpointDeleted
	}
	d.events.Checkpoint(kind, id, c.Name, c.Reason)
}
