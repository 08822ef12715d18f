package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"holt"
	"holt/internal/engine/jail"
)

// ping checks whether networks of computers may send pings: net.ipv4.ping_group_range must permit their groups to open
// unprivileged ICMP sockets.
func (h host) ping(_ context.Context, _ Options) holt.Finding {
	const file = "proc/sys/net/ipv4/ping_group_range"
	b, err := os.ReadFile(h.path(file))
	if err != nil {
		return warn("computers cannot ping: "+err.Error(), "")
	}
	var first, last, low, high int
	if _, err := fmt.Sscan(string(b), &first, &last); err != nil {
		return warn(fmt.Sprintf("/%s cannot be read: %v", file, err), "")
	}
	if low, high = h.gid, h.gid; h.uid == 0 { // each network has its own user and group
		low, high = jail.Users()
	}
	if first > low || last < high {
		return warn("computers cannot ping: net.ipv4.ping_group_range is "+strings.Join(strings.Fields(string(b)), " ")+", so each ping gets the answer administratively prohibited",
			`run sysctl -w net.ipv4.ping_group_range="0 2147483647"; to keep it after a reboot, put the line net.ipv4.ping_group_range = 0 2147483647 in a file in /etc/sysctl.d`)
	}
	return ok("computers can ping what their policies allow")
}
