package netstack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const mostFailures = 64 // consecutive failed reads of a socket

// wantErrors makes a socket queue ICMP errors of routers and of its peer (IP_RECVERR).
func wantErrors(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// nextError takes an error from a socket's error queue, with the packet that it is about, starting at the ICMP header
// or at the payload of UDP. found is false if there is none.
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

// extended decodes the kernel's description of an error: an ICMP message and its sender, or that the host has a smaller MTU.
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
		e.info = said.Info << 24 // offset in the header
	case header.ICMPv4TimeExceeded:
	default:
		return e, false
	}
	return e, true
}

// setTTL sets the time to live of a socket's packets. The caller subtracts the gateway's hop.
func setTTL(fd int, ttl uint8) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, int(ttl))
}
