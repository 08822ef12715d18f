package netstack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"holt"
)

var quiet = slog.New(slog.DiscardHandler)

// world is a host, its networks and an internet, in three network namespaces,
// so that nothing leaves the machine. The host and its networks have forbidden
// addresses, with listeners that count. The networks' addresses are not the
// host's: only the policy refuses them.
type world struct {
	t        *testing.T
	internet int // namespace
	leaks    atomic.Int64
	zone     sync.Map // name → []dns.RR
	asked    sync.Map // names that the internet's resolver was asked for
}

const (
	envWorld  = "HOLT_TEST_WORLD"
	resolving = "93.184.216.53:53"
	echoPort  = 7
)

// public are addresses of the internet, forbidden ones of the host and its
// networks: some of each range that is not public, including the last address
// of ranges that do not end at a byte boundary.
var (
	public   = []string{"93.184.216.34", "93.184.216.35", "93.184.216.53", "151.101.1.1"}
	onHost   = []string{"127.0.0.1", "127.1.2.3", "93.184.216.99"} // the last is public, but the host's
	nextdoor = []string{
		"10.1.2.3", "172.16.5.5", "192.168.7.7", "100.64.1.1", "169.254.169.254", "169.254.170.2", "192.0.0.192", "198.18.0.1", "168.63.129.16",
		"172.31.255.254", "100.127.255.254", "198.19.255.254", "192.0.2.1", "192.88.99.1", "198.51.100.1", "203.0.113.1", "0.1.2.3", "240.1.2.3", "255.1.2.3",
	}
	forbidden = slices.Concat(onHost, nextdoor)
)

// The host's ends of the links to the internet and to its networks, and the far
// ends: nothing listens there.
const (
	nearInternet, farInternet = "44.0.0.1", "44.0.0.2"
	nearBeside, farBeside     = "44.0.1.1", "44.0.1.2"
)

// inWorld runs the test again in its own namespaces; outside of them it returns nil.
func inWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv(envWorld) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), envWorld+"=1")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in its own network: %v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) { // figures
			if err == nil && strings.Contains(line, "_test.go:") && !strings.Contains(line, wayMark) {
				t.Log(strings.TrimSpace(line))
			}
		}
		return nil
	}
	w := &world{t: t}
	w.build()
	return w
}

func (w *world) ip(words string) {
	w.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v: %s", words, err, out)
	}
}

// namespace creates an empty network namespace, and the process that keeps it.
func (w *world) namespace() (fd, pid int) {
	t := w.t
	t.Helper()
	far := exec.Command("unshare", "--net", "sleep", "600")
	far.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := far.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Process.Kill(); far.Wait() })
	here, err := os.Readlink("/proc/thread-self/ns/net") // the first thread may have gone elsewhere
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/%d/ns/net", far.Process.Pid)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		there, err := os.Readlink(path)
		if err == nil && there != here {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("no second namespace")
		}
	}
	if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd, far.Process.Pid
}

// build creates the namespaces and listeners.
func (w *world) build() {
	t := w.t
	t.Helper()
	w.ip("link set lo up")
	w.internet = w.line("internet", nearInternet, farInternet, public)
	w.ip("route add default via " + farInternet)
	neighbours := w.line("nextdoor", nearBeside, farBeside, nextdoor)
	for _, a := range nextdoor {
		w.ip("route add " + a + "/32 via " + farBeside)
	}
	leak := func() { w.leaks.Add(1) }
	for _, a := range onHost {
		if !strings.HasPrefix(a, "127.") {
			w.ip("addr add " + a + "/32 dev lo")
		}
		w.serve(a, leak)
	}
	inNamespace(t, neighbours, func() {
		for _, a := range nextdoor {
			w.serve(a, leak)
		}
	})
	w.there(func() {
		for _, a := range public {
			w.serve(a, func() {})
		}
		w.nameserver()
	})
	w.ip("-6 addr add fd00:ec2::254/128 dev lo nodad")
	for _, a := range []string{"::1", "fd00:ec2::254"} {
		w.serve(a, leak)
	}
}

// line creates a namespace with some addresses at the other end of a link from the host.
func (w *world) line(name, near, far string, addresses []string) (namespace int) {
	w.t.Helper()
	namespace, pid := w.namespace()
	w.ip("link add " + name + " type veth peer name far")
	w.ip(fmt.Sprintf("link set far netns %d", pid))
	w.ip("addr add " + near + "/30 dev " + name)
	w.ip("link set " + name + " up")
	inNamespace(w.t, namespace, func() {
		w.ip("link set lo up")
		w.ip("addr add " + far + "/30 dev far")
		w.ip("link set far up")
		for _, a := range addresses {
			w.ip("addr add " + a + "/32 dev lo")
		}
	})
	return namespace
}

// there runs do in the internet's namespace. Sockets that it opens stay there.
func (w *world) there(do func()) { inNamespace(w.t, w.internet, do) }

func inNamespace(t *testing.T, namespace int, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// serve makes an address echo at port 7, and say hello at port 80.
func (w *world) serve(address string, met func()) {
	w.t.Helper()
	listen := func(port int, serve func(net.Conn)) {
		l, err := net.Listen("tcp", net.JoinHostPort(address, fmt.Sprint(port)))
		if err != nil {
			w.t.Error(err)
			return
		}
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				met()
				go func() { defer c.Close(); serve(c) }()
			}
		}()
	}
	listen(echoPort, func(c net.Conn) { io.Copy(c, c) })
	listen(80, func(c net.Conn) {
		c.SetReadDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 1024)) // the request
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nhello\n")
	})
	u, err := net.ListenPacket("udp", net.JoinHostPort(address, fmt.Sprint(echoPort)))
	if err != nil {
		w.t.Error(err)
		return
	}
	w.t.Cleanup(func() { u.Close() })
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			met()
			u.WriteTo(b[:n], from)
		}
	}()
}

// nameserver serves the zone.
func (w *world) nameserver() {
	handler := dns.HandlerFunc(func(out dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg)
		a.SetReply(q)
		w.asked.Store(strings.ToLower(q.Question[0].Name), true)
		if all, ok := w.zone.Load(strings.ToLower(q.Question[0].Name)); ok {
			a.Answer = all.([]dns.RR)
		} else {
			a.Rcode = dns.RcodeNameError
		}
		if _, stream := out.RemoteAddr().(*net.TCPAddr); !stream {
			a.Truncate(dns.MinMsgSize)
		}
		out.WriteMsg(a)
	})
	p, err := net.ListenPacket("udp4", resolving)
	if err != nil {
		w.t.Error(err)
		return
	}
	l, err := net.Listen("tcp4", resolving)
	if err != nil {
		w.t.Error(err)
		return
	}
	for _, s := range []*dns.Server{{PacketConn: p, Handler: handler}, {Listener: l, Handler: handler}} {
		go s.ActivateAndServe()
		w.t.Cleanup(func() { s.Shutdown() })
	}
}

// name adds records to the zone, in zone file format without the name.
func (w *world) name(name string, records ...string) {
	w.t.Helper()
	var all []dns.RR
	for _, one := range records {
		rr, err := dns.NewRR(name + ". 1 IN " + one)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, rr)
	}
	w.zone.Store(name+".", all)
}

// guest is the other end of a link: a stack in place of a guest's kernel.
type guest struct {
	t    *testing.T
	ip   *stack.Stack
	link *line
	// unplug detaches it from its stack.
	unplug func()
}

// start returns a stack with a policy and an attached guest.
func (w *world) start(p holt.NetworkPolicy) (*Stack, *guest) {
	w.t.Helper()
	s := w.stack(p, Options{})
	return s, w.attach(s)
}

func (w *world) stack(p holt.NetworkPolicy, o Options) *Stack {
	t := w.t
	t.Helper()
	o.Log, o.Upstreams = quiet, []string{resolving}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w.policy(s, p)
	return s
}

func (w *world) policy(s *Stack, p holt.NetworkPolicy) {
	w.t.Helper()
	rules, err := ParsePolicy(p)
	if err != nil {
		w.t.Fatal(err)
	}
	s.SetPolicy(rules)
}

func (w *world) attach(s *Stack) *guest {
	t := w.t
	t.Helper()
	g := &guest{t: t, link: newLine("\x52\x54\x00\x68\x6f\x6c")}
	g.ip = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})
	if err := g.ip.CreateNIC(nic, ethernet.New(g.link)); err != nil {
		t.Fatal(err)
	}
	if err := g.ip.AddProtocolAddress(nic, tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: addressOf(Guest), PrefixLen: 24},
	}, stack.AddressProperties{}); err != nil {
		t.Fatal(err)
	}
	g.ip.SetRouteTable([]tcpip.Route{
		{Destination: tcpip.AddressWithPrefix{Address: addressOf(inner.Addr()), PrefixLen: 24}.Subnet(), NIC: nic},
		{Destination: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4([4]byte{}), PrefixLen: 0}.Subnet(), Gateway: addressOf(Gateway), NIC: nic},
	})
	g.plug(s)
	t.Cleanup(func() { g.unplug(); g.ip.Close() })
	return g
}

// plug attaches the guest to a stack until unplug.
func (g *guest) plug(s *Stack) {
	ours, theirs := pair(g.t)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := s.Attach(ctx, ours); err != nil {
			g.t.Errorf("attach: %v", err)
		}
	})
	g.link.attach(theirs)
	work.Go(func() { g.link.send(ctx, theirs) })
	work.Go(func() { receive(theirs, g.link, func([]byte) bool { return true }) })
	g.unplug = func() { cancel(); theirs.Close(); work.Wait() }
}

func (g *guest) dial(to string) (*gonet.TCPConn, error) { return g.dialFor(to, 10*time.Second) }

func (g *guest) dialFor(to string, limit time.Duration) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), limit)
	defer cancel()
	return gonet.DialContextTCP(ctx, g.ip, full(to), ipv4.ProtocolNumber)
}

func full(to string) tcpip.FullAddress {
	a := netip.MustParseAddrPort(to)
	return tcpip.FullAddress{NIC: nic, Addr: addressOf(a.Addr()), Port: a.Port()}
}

// pair returns a connected pair of sockets that preserve message boundaries.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "link")
		if out[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return out[0], out[1]
}
