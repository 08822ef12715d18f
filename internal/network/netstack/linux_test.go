package netstack

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// machine is a guest with a Linux kernel: a network namespace whose eth0 is the link.
type machine struct {
	t         *testing.T
	namespace int
	raw       int // packet socket on eth0
	link      int // index of eth0
	mac       net.HardwareAddr
}

// machine attaches a machine to a stack.
func (w *world) machine(s *Stack) *machine {
	t := w.t
	t.Helper()
	m := &machine{t: t}
	m.namespace, _ = w.namespace()
	var tap *os.File
	m.in(func() {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return
		}
		ifr, err := unix.NewIfreq("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			t.Error(err)
			return
		}
		tap = os.NewFile(uintptr(fd), "tap")
		for _, words := range []string{
			"link set lo up", fmt.Sprintf("link set eth0 mtu %d", MTU), "addr add 10.0.2.15/24 dev eth0", "link set eth0 up", "route add default via 10.0.2.2",
			"-6 addr add fec0::15/64 dev eth0 nodad", "-6 neigh add fec0::2 lladdr 52:55:0a:00:02:02 dev eth0", "-6 route add default via fec0::2",
		} {
			if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v: %s", words, err, out)
			}
		}
		m.listenRaw()
	})
	if t.Failed() {
		t.FailNow()
	}
	m.bridge(s, tap)
	return m
}

func (m *machine) listenRaw() {
	one, err := net.InterfaceByName("eth0")
	if err != nil {
		m.t.Error(err)
		return
	}
	m.link, m.mac = one.Index, one.HardwareAddr
	if m.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		m.t.Error(err)
	}
	m.t.Cleanup(func() { unix.Close(m.raw) })
}

// bridge forwards frames between eth0 and the stack.
func (m *machine) bridge(s *Stack, tap *os.File) {
	ours, theirs := pair(m.t)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.Attach(ctx, ours); err != nil {
			m.t.Errorf("attach: %v", err)
		}
	})
	work.Go(func() {
		b := make([]byte, 4+maxFrame)
		for {
			n, err := tap.Read(b[4:])
			if err != nil {
				return
			}
			binary.BigEndian.PutUint32(b, uint32(n))
			if _, err := theirs.Write(b[:4+n]); err != nil {
				return
			}
		}
	})
	work.Go(func() {
		b, link := make([]byte, maxFrame), bufio.NewReaderSize(theirs, linkBuffer)
		var length [4]byte
		for {
			if _, err := io.ReadFull(link, length[:]); err != nil {
				return
			}
			n := binary.BigEndian.Uint32(length[:])
			if _, err := io.ReadFull(link, b[:n]); err != nil {
				return
			}
			tap.Write(b[:n])
		}
	})
	m.t.Cleanup(func() { cancel(); tap.Close(); theirs.Close(); work.Wait() })
}

// in runs do in the machine.
func (m *machine) in(do func()) { inNamespace(m.t, m.namespace, do) }

// dial opens a connection from the machine to an address.
func (m *machine) dial(ctx context.Context, network, to string) (net.Conn, error) {
	return m.dialWithin(ctx, time.Second, network, to)
}

func (m *machine) dialWithin(ctx context.Context, limit time.Duration, network, to string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m.in(func() {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, to)
	})
	return c, err
}

// echo sends bytes to an address and reads them back.
func (m *machine) echo(network, to string) error {
	return m.echoWithin(time.Second, network, to)
}

func (m *machine) echoWithin(limit time.Duration, network, to string) error {
	c, err := m.dialWithin(context.Background(), limit, network, to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	return there(c)
}

// frame sends a frame unchanged.
func (m *machine) frame(kind uint16, to net.HardwareAddr, payload []byte) error {
	b := append(append(append([]byte{}, to...), m.mac...), byte(kind>>8), byte(kind))
	b = append(b, payload...)
	if len(b) < 60 {
		b = append(b, make([]byte, 60-len(b))...)
	}
	return unix.Sendto(m.raw, b, 0, &unix.SockaddrLinklayer{Ifindex: m.link, Halen: 6})
}

var gatewayMAC = net.HardwareAddr(ourMAC)

// rawIP is a packet with arbitrary fields.
type rawIP struct {
	from, to string
	protocol byte
	options  []byte
	fragment uint16 // flags and offset
	payload  []byte
}

func (p rawIP) bytes() []byte {
	if p.from == "" {
		p.from = Guest.String()
	}
	b := make([]byte, 20+len(p.options), 20+len(p.options)+len(p.payload))
	b[0] = 0x40 | byte(len(b)/4)
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(p.payload)))
	binary.BigEndian.PutUint16(b[4:], 0x4242)
	binary.BigEndian.PutUint16(b[6:], p.fragment)
	b[8], b[9] = 64, p.protocol
	copy(b[12:], net.ParseIP(p.from).To4())
	copy(b[16:], net.ParseIP(p.to).To4())
	copy(b[20:], p.options)
	binary.BigEndian.PutUint16(b[10:], sum(b))
	return append(b, p.payload...)
}

func sum(b []byte) uint16 {
	var all uint32
	for i := 0; i+1 < len(b); i += 2 {
		all += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for all > 0xffff {
		all = all>>16 + all&0xffff
	}
	return ^uint16(all)
}

// udpPacket returns a datagram without a checksum.
func udpPacket(from, to uint16, payload string) []byte {
	b := make([]byte, 8, 8+len(payload))
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(payload)))
	return append(b, payload...)
}

// synPacket begins a connection.
func synPacket(src, dst string, from, to uint16, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], to)
	binary.BigEndian.PutUint32(b[4:], 1)
	b[12], b[13] = 5<<4, flags
	binary.BigEndian.PutUint16(b[14:], 4096)
	pseudo := append(append([]byte{}, net.ParseIP(src).To4()...), net.ParseIP(dst).To4()...)
	pseudo = append(pseudo, 0, 6, 0, byte(len(b)))
	binary.BigEndian.PutUint16(b[16:], sum(append(pseudo, b...)))
	return b
}
