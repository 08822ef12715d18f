package holt

// NetworkTraffic is what a computer has sent and received since it was made, also before it was
// paused or stopped; a fork begins with nothing.
type NetworkTraffic struct {
	Sent         int64     `json:"sent" doc:"bytes of payload, to all destinations"`
	Received     int64     `json:"received" doc:"bytes of payload"`
	Connections  int64     `json:"connections" doc:"that were opened, with flows of datagrams"`
	Open         int64     `json:"open" doc:"of them, now"`
	Refused      int64     `json:"refused" doc:"by the policy: connections, datagrams and names"`
	Destinations []Traffic `json:"destinations" nullable:"false" doc:"in the order of names; without a name: all others together"`
}

// SumTraffic adds up what went to and from destinations.
func SumTraffic(all []Traffic) NetworkTraffic {
	out := NetworkTraffic{Destinations: append([]Traffic{}, all...)}
	for _, t := range all {
		out.Sent += t.Sent
		out.Received += t.Received
		out.Connections += t.Connections
		out.Open += t.Open
		out.Refused += t.Refused
	}
	return out
}
