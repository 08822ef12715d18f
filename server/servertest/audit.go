package servertest

import (
	"context"

	"holt"
)

// nothingDone is the audit log of a world in which nobody looks.
type nothingDone struct{}

func (nothingDone) List(context.Context, holt.AuditSpec) ([]holt.AuditEntry, error) {
	return []holt.AuditEntry{}, nil
}

func (nothingDone) Query(context.Context, string, holt.AuditQuery) (holt.QueryResult, error) {
	return holt.QueryResult{}, nil
}
