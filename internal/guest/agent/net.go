package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network is the machine's static network.
type network struct {
	address    netip.Prefix
	gateway    netip.Addr
	nameserver netip.Addr
}

// parseNet reads address/bits,gateway,nameserver.
func parseNet(s string) (n network, err error) {
	f := strings.Split(s, ",")
	if len(f) != 3 {
		return n, fmt.Errorf("network %q is not address/bits,gateway,nameserver", s)
	}
	if n.address, err = netip.ParsePrefix(f[0]); err != nil {
		return n, fmt.Errorf("network address: %w", err)
	}
	if n.gateway, err = netip.ParseAddr(f[1]); err != nil {
		return n, fmt.Errorf("network gateway: %w", err)
	}
	if n.nameserver, err = netip.ParseAddr(f[2]); err != nil {
		return n, fmt.Errorf("network nameserver: %w", err)
	}
	return n, nil
}

// raise configures the loopback and the first Ethernet link, if there is one,
// with its address, default route and resolver. Existing settings are no error.
func (n network) raise() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list network links: %w", err)
	}
	var ethernet netlink.Link
	for _, l := range links {
		a := l.Attrs()
		switch {
		case a.Flags&net.FlagLoopback != 0:
			if err := netlink.LinkSetUp(l); err != nil {
				return fmt.Errorf("raise %s: %w", a.Name, err)
			}
		case ethernet == nil && l.Type() == "device":
			ethernet = l
		}
	}
	if ethernet == nil {
		return errors.New("there is no network device")
	}
	if err := n.assign(ethernet); err != nil {
		return fmt.Errorf("configure %s: %w", ethernet.Attrs().Name, err)
	}
	return n.resolve()
}

// resolve configures the resolver.
func (n network) resolve() error { return writeResolver("/etc/resolv.conf", n.nameserver) }

func (n network) assign(l netlink.Link) error {
	bits := 8 * len(n.address.Addr().AsSlice())
	addr := &netlink.Addr{IPNet: &net.IPNet{
		IP:   n.address.Addr().AsSlice(),
		Mask: net.CIDRMask(n.address.Bits(), bits),
	}}
	if err := netlink.AddrAdd(l, addr); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add address: %w", err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("raise: %w", err)
	}
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: n.gateway.AsSlice()}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

// raiseLoopback configures a machine without a network.
func raiseLoopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	return nil
}

// writeResolver replaces resolv.conf, which may be a link to a file of a service that does not run.
func writeResolver(path string, server netip.Addr) error {
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSymlink != 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("set resolver: %w", err)
		}
	}
	if err := replaceFile(path, "nameserver "+server.String()+"\n"); err != nil {
		return fmt.Errorf("set resolver: %w", err)
	}
	return nil
}
