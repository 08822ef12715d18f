package daemon

import "time"

const (
	maxStops      = 4               // guests that Down shuts down at the same time
	scrapeTimeout = 5 * time.Second // for the queries of one scrape, or of Ready
)

const (
	readyFor  = time.Second // how long an answer of Ready is reused: the question needs no token
	readyRoom = 64 << 20    // bytes that must be free on the disk of the data directory
)

// Limits of reach.
const (
	reachFresh = 5 * time.Minute
	reachWait  = 2 * time.Second // for the first caller
	reachLook  = 20 * time.Second
	maxReach   = 64 // addresses
)
