package holt

// NetworkTraffic counts a computer's traffic since it was created, across pauses and stops. A fork
// starts at zero.
type NetworkTraffic struct {
	Sent         int64     `json:"sent" doc:"payload bytes to all destinations"`
	Received     int64     `json:"received" doc:"payload bytes"`
	Connections  int64     `json:"connections" doc:"opened connections and datagram flows"`
	Open         int64     `json:"open" doc:"connections that are open now"`
	Refused      int64     `json:"refused" doc:"connections, datagrams and names refused by the policy"`
	Destinations []Traffic `json:"destinations" nullable:"false" doc:"sorted by name; the entry without a name sums up all others"`
}

// SumTraffic sums up the traffic of destinations.
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
