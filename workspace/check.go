package workspace

import (
	"context"

	"holt"
)

// Check verifies the whole workspace against its invariants: link counts,
// sizes, extents, references and the checksums of every byte. It returns an
// error only when it could not look; what it found wrong is in the report.
func (w *Workspace) Check(ctx context.Context) (holt.CheckReport, error) {
	return holt.CheckReport{}, holt.Errorf(holt.Unsupported, "check workspace: not built yet")
}
