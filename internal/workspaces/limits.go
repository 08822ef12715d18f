package workspaces

import "time"

// Limits of queries.
const (
	maxQueries             = 4               // at the same time: each may take some hundred MiB; more have to wait
	maxQueriesPerWorkspace = 2               // of these
	maxQueriesPerTenant    = 2               // of these
	maxQueryTime           = 5 * time.Minute // the index cannot trim its log during a query
)

// Limits of open workspaces.
const (
	idleTime   = 30 * time.Second // an unused workspace is closed after this time
	deleteWait = 30 * time.Second // for users of a workspace that is deleted to stop
)

// Limits of mounts.
const (
	mountTimeout  = 30 * time.Second // for one mount
	notifyTimeout = 10 * time.Second // for a kernel with a full queue to take a notification
	settleTimeout = 2 * time.Second  // for a kernel to take all notifications before a call returns
)

// packInterval is how often closed workspaces that have something to pack are
// looked for. If there are none, that is one query.
const packInterval = 5 * time.Minute

// flushRetry is how often a flush of a busy guest is tried again.
const flushRetry = 20 * time.Millisecond

// maxName bounds a name that gets a number appended, bytes.
const maxName = 63 - len("-99999")
