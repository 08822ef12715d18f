package netstack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const mostFailures = 64 // reads of a socket in a row that bring nothing but an error

// wantErrors has a socket keep the errors that routers and its peer send (IP_RECVERR).
func wantErrors(fd int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// nextError takes an error of a socket's queue, with what it is about, from the header of ICMP or the payload of UDP on. False: there
// is none.
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

// extended reads what the kernel says of an error: that of the ICMP message, from whom that came, or that the host itself has a smaller MTU.
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
		e.info = said.Info << 24 // where in the header
	case header.ICMPv4TimeExceeded:
	default:
		return e, false
	}
	return e, true
}

// setTTL has a socket send with a time to live. The guest's packets have gone through the gateway, one hop.
func setTTL(fd int, ttl uint8) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, int(ttl))
}
