package netstack

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// A ping of the guest is sent by an unprivileged ICMP socket of the host, if
// the host allows them (icmp(7), ping_group_range). The guest gets the reply,
// or the ICMP error of a router.

const (
	echoIdle  = 30 * time.Second
	echoesOut = 64 // packets of one flow that are kept to match errors
)

// echoes are the active ping flows.
type echoes struct {
	mu  sync.Mutex
	set map[echoKey]*echo
}

type echoKey struct {
	to netip.Addr
	id uint16
}

// echo is a ping flow: pings with one id to one address.
type echo struct {
	key  echoKey
	flow *flow
	idle *time.Timer // ends the flow
	raw  syscall.RawConn

	mu   sync.Mutex
	sent [echoesOut][]byte // headers of the guest's packets, by sequence number
}

// echo sends a ping if the policy allows any port of the address.
func (s *Stack) echo(ip header.IPv4, h header.ICMPv4) {
	key := echoKey{addrOf(ip.DestinationAddress()), h.Ident()}
	f := s.newFlow(netip.AddrPortFrom(key.to, 0), nil)
	if !s.allows(f) {
		s.count.refuse(s.destination(f.to))
		s.tell(prohibited, ip)
		return
	}
	if ip.TTL() <= 1 {
		s.tell(expired, ip)
		return
	}
	s.echoes.mu.Lock()
	e := s.echoes.set[key]
	s.echoes.mu.Unlock()
	if e == nil {
		var err error
		if e, err = s.beginEcho(key, f); err != nil {
			s.count.refuse(s.destination(f.to))
			s.tell(refusedBy(err), ip)
			return
		}
	}
	e.send(s, ip, h)
}

// refusedBy returns the gateway's ICMP error for a ping that the host cannot send.
func refusedBy(err error) icmpError {
	switch {
	case errors.Is(err, unix.ENETUNREACH):
		return icmpError{kind: header.ICMPv4DstUnreachable, code: header.ICMPv4NetUnreachable, from: Gateway}
	case errors.Is(err, unix.EHOSTUNREACH):
		return icmpError{kind: header.ICMPv4DstUnreachable, code: header.ICMPv4HostUnreachable, from: Gateway}
	}
	return prohibited
}

// beginEcho opens a socket for a ping flow and receives replies until it has been idle.
func (s *Stack) beginEcho(key echoKey, f *flow) (*echo, error) {
	if s.flows.taken(datagrams) >= manyDatagrams {
		s.flows.endOldest()
	}
	if !s.flows.enter(datagrams) {
		return nil, errTooMany
	}
	conn, err := pingSocket(key.to)
	if err != nil {
		s.flows.leave(datagrams)
		return nil, err
	}
	e := &echo{key: key, flow: f, idle: time.AfterFunc(echoIdle, f.reset)}
	e.raw, _ = conn.(syscall.Conn).SyscallConn()
	f.count = s.count.opens(s.destination(f.to))
	f.last.now()
	remove := s.flows.add(f)
	s.echoes.mu.Lock()
	if s.echoes.set == nil {
		s.echoes.set = map[echoKey]*echo{}
	}
	s.echoes.set[key] = e
	s.echoes.mu.Unlock()
	f.onReset(func() { conn.Close() })
	if !s.allows(f) { // the policy has changed
		f.reset()
	}
	go func() {
		defer s.flows.leave(datagrams)
		e.receive(s)
		e.idle.Stop()
		s.echoes.mu.Lock()
		delete(s.echoes.set, key)
		s.echoes.mu.Unlock()
		f.reset()
		remove()
		f.count.open.Add(-1)
	}()
	return e, nil
}

// pingSocket opens an unprivileged ICMP socket to an address.
func pingSocket(to netip.Addr) (net.PacketConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "ping")
	defer file.Close() // FilePacketConn duplicates it
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.As4()})
	if err == nil {
		err = wantErrors(fd)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
	}
	if err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	return net.FilePacketConn(file)
}

// send sends a ping. The kernel replaces the id with that of the socket.
func (e *echo) send(s *Stack, ip header.IPv4, h header.ICMPv4) {
	e.lasts()
	e.mu.Lock()
	e.sent[int(h.Sequence())%echoesOut] = append([]byte{}, ip[:min(len(ip), int(ip.HeaderLength())+header.ICMPv4MinimumSize)]...)
	e.mu.Unlock()
	discover := unix.IP_PMTUDISC_DONT
	if ip.Flags()&header.IPv4FlagDontFragment != 0 {
		discover = unix.IP_PMTUDISC_DO
	}
	var err error
	var mtu int
	e.raw.Control(func(fd uintptr) {
		if err = setTTL(int(fd), ip.TTL()-1); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, discover)
		}
		if err == nil {
			if err = sendOn(int(fd), h); err == nil {
				e.flow.count.sent.Add(int64(len(h)))
			}
		}
		if errors.Is(err, unix.EMSGSIZE) {
			mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
		}
	})
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		s.tell(icmpError{kind: header.ICMPv4DstUnreachable, code: header.ICMPv4FragmentationNeeded, info: uint32(mtu), from: Gateway}, ip)
	case err != nil && !errors.Is(err, unix.EAGAIN):
		s.tell(refusedBy(err), ip)
	}
}

// lasts resets the idle timer.
func (e *echo) lasts() {
	e.flow.last.now()
	e.idle.Reset(echoIdle)
}

// sendOn sends on a connected socket and retries if the error of an earlier
// packet is reported first.
func sendOn(fd int, b []byte) error {
	err := unix.Sendto(fd, b, unix.MSG_DONTWAIT, nil)
	if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EMSGSIZE) {
		err = unix.Sendto(fd, b, unix.MSG_DONTWAIT, nil)
	}
	return err
}

// receive passes replies and errors to the guest until the flow ends.
func (e *echo) receive(s *Stack) {
	for failures := 0; failures < mostFailures; {
		err := e.raw.Read(func(fd uintptr) bool {
			b := datagramBuffers.Get().(*[maxDatagram]byte)
			defer datagramBuffers.Put(b)
			for {
				said, about, found := nextError(int(fd), b[:])
				if !found {
					break
				}
				e.failed(s, said, about)
			}
			var oob [64]byte
			n, k, _, _, err := unix.Recvmsg(int(fd), b[:], oob[:], unix.MSG_DONTWAIT)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failures++
				return true
			}
			failures = 0
			e.lasts()
			e.answered(s, b[:n], ttlOf(oob[:k]))
			return true
		})
		if err != nil {
			return
		}
	}
}

// answered passes a reply to the guest, with the guest's id.
func (e *echo) answered(s *Stack, message []byte, ttl uint8) {
	h := header.ICMPv4(message)
	if len(h) < header.ICMPv4MinimumSize || h.Type() != header.ICMPv4EchoReply {
		return
	}
	e.flow.count.received.Add(int64(len(message)))
	h.SetIdent(e.key.id)
	s.deliver(e.key.to, ttl, message)
}

// failed passes an ICMP error about a ping to the guest.
func (e *echo) failed(s *Stack, said icmpError, about []byte) {
	if len(about) < header.ICMPv4MinimumSize {
		return
	}
	sequence := binary.BigEndian.Uint16(about[6:])
	e.mu.Lock()
	packet := e.sent[int(sequence)%echoesOut]
	e.mu.Unlock()
	if len(packet) > 0 && binary.BigEndian.Uint16(packet[len(packet)-2:]) == sequence {
		s.tell(s.asSeen(said), packet)
	}
}

// ttlOf returns the time to live of a received packet.
func ttlOf(oob []byte) uint8 {
	all, _ := unix.ParseSocketControlMessage(oob)
	for _, one := range all {
		if one.Header.Level == unix.IPPROTO_IP && one.Header.Type == unix.IP_TTL && len(one.Data) >= 4 {
			return uint8(binary.NativeEndian.Uint32(one.Data))
		}
	}
	return sentTTL
}
