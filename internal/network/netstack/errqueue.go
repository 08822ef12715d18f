package netstack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const mostFailures = 64 // consecutive reads of a socket that return only an error

// wantErrors enables the error queue of a socket (IP_RECVERR) for ICMP errors
// of routers and the peer.
func wantErrors(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// nextError reads an error from a socket's queue, with the packet it is about
// from the ICMP header or the UDP payload on. found is false if the queue is
// empty.
func nextError(fd int, b []byte) (e icmpError, about []byte, found bool) {
	var oob [256]byte
	for {
		n, k, _, _, err := unix.Recvmsg(fd, b, oob[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return e, nil, false
		}
		all, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil {
			continue
		}
		for _, one := range all {
			if one.Header.Level == unix.IPPROTO_IP && one.Header.Type == unix.IP_RECVERR {
				if e, ok := extended(one.Data); ok {
					return e, b[:n], true
				}
			}
		}
	}
}

// extended decodes the kernel's description of an error: an ICMP message and
// its sender, or the smaller MTU of the host.
func extended(b []byte) (e icmpError, ok bool) {
	const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	if len(b) < size {
		return e, false
	}
	said := (*unix.SockExtendedErr)(unsafe.Pointer(&b[0]))
	switch {
	case said.Origin == unix.SO_EE_ORIGIN_LOCAL && unix.Errno(said.Errno) == unix.EMSGSIZE:
		return icmpError{kind: header.ICMPv4DstUnreachable, code: header.ICMPv4FragmentationNeeded, info: said.Info & 0xffff, from: Gateway}, true
	case said.Origin != unix.SO_EE_ORIGIN_ICMP || len(b) < size+unix.SizeofSockaddrInet4 || binary.NativeEndian.Uint16(b[size:]) != unix.AF_INET:
		return e, false
	}
	e = icmpError{kind: header.ICMPv4Type(said.Type), code: header.ICMPv4Code(said.Code), from: netip.AddrFrom4([4]byte(b[size+4 : size+8]))}
	switch e.kind {
	case header.ICMPv4DstUnreachable:
		e.info = said.Info & 0xffff // the MTU
	case header.ICMPv4ParamProblem:
		e.info = said.Info << 24 // pointer into the header
	case header.ICMPv4TimeExceeded:
	default:
		return e, false
	}
	return e, true
}

// setTTL sets the time to live of a socket, one hop less than the guest's, for the gateway.
func setTTL(fd int, ttl uint8) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, int(ttl))
}
