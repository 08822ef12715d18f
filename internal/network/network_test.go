package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

const serving = "serve-network"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == lying {
		slog.Error("lie", "err", lie(os.Args[2]))
		os.Exit(1)
	}
	if len(os.Args) == 3 && os.Args[1] == serving {
		if err := Serve(context.Background(), os.Args[2]); err != nil {
			slog.Error("serve", "err", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = 20 * time.Second

// fake is a machine without a guest: a process, and the machine's end of a link, which the test has.
type fake struct {
	t        *testing.T
	dir      string
	process  *os.Process
	listener net.Listener
	conn     net.Conn
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, dir: filepath.Join(t.TempDir(), strings.Repeat("long", 30))} // longer than a socket address
	t.Cleanup(func() {
		left, err := Strays(f.dir)
		for _, s := range left {
			t.Errorf("a network is left: %+v", s)
			s.Kill()
		}
		if err != nil {
			t.Error(err)
		}
	})
	f.boot()
	return f
}

// boot starts a machine in the directory.
func (f *fake) boot() {
	f.t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	f.process = cmd.Process
	d, err := machine.MakeDir(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	defer d.Close()
	p, err := machine.Identify(cmd.Process.Pid)
	if err == nil {
		err = d.WriteRecord(machine.Record{Engine: "test", Process: p, Spec: machine.Spec{Dir: f.dir}})
	}
	if err == nil {
		err = d.Remove(machine.Socket(machine.PortNetwork))
	}
	var file *os.File
	if err == nil {
		file, err = d.ListenFrames(machine.Socket(machine.PortNetwork))
	}
	if err == nil {
		f.listener, err = net.FileListener(file)
		file.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.listener.Close() })
}

// joined waits until the network connects and its gateway answers.
func (f *fake) joined() {
	f.t.Helper()
	f.listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	c, err := f.listener.Accept()
	if err != nil {
		f.t.Fatal("no network connects: ", err)
	}
	f.t.Cleanup(func() { c.Close() })
	f.conn = c
	f.refuses()
	f.answers()
}

// refuses checks that a connection to a private network is refused. It sends no ARP request before, like a guest that
// knows the gateway.
func (f *fake) refuses() {
	f.t.Helper()
	frame := segment(0x1234, netip.MustParseAddrPort("10.9.9.9:80"), 1, 0, flagSYN, "")
	f.hears(frame, "that it is refused", func(said []byte) bool {
		return said[12] == 8 && said[13] == 0 && said[23] == 6 && bytes.Equal(said[26:30], []byte{10, 9, 9, 9}) && said[47]&4 != 0 // RST
	})
}

// segment is a frame of the guest's with one of TCP.
func segment(port uint16, to netip.AddrPort, seq, ack uint32, flags byte, payload string) []byte {
	tcp := make([]byte, 20, 20+len(payload))
	binary.BigEndian.PutUint16(tcp, port)
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	copy(tcp[12:], []byte{5 << 4, flags, 0xff, 0xff})
	tcp = append(tcp, payload...)
	there := to.Addr().AsSlice()
	binary.BigEndian.PutUint16(tcp[16:], checksum(slices.Concat([]byte{10, 0, 2, 15}, there, []byte{0, 6, 0, byte(len(tcp))}, tcp)))
	ip := slices.Concat([]byte{0x45, 0, 0, byte(20 + len(tcp)), 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 2, 15}, there)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return slices.Concat([]byte{0x52, 0x55, 0x0a, 0, 2, 2, 0x52, 0x54, 0, 0x68, 0x6f, 0x6c, 8, 0}, ip, tcp)
}

// checksum is the Internet's (RFC 1071).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	if len(b)%2 == 1 {
		b = append(b[:len(b):len(b)], 0)
	}
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// hears sends a frame and waits for one of at least 42 bytes.
func (f *fake) hears(frame []byte, what string, is func([]byte) bool) {
	f.t.Helper()
	f.conn.SetDeadline(time.Now().Add(patience))
	if _, err := f.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		f.t.Fatal(err)
	}
	for message := make([]byte, 1<<17); ; {
		n, err := f.conn.Read(message)
		if err != nil {
			f.t.Fatalf("it does not hear %s: %v", what, err)
		}
		said := message[4:n]
		if length := binary.BigEndian.Uint32(message); int(length) != len(said) {
			f.t.Fatalf("a frame of %d bytes is in a message of %d", length, n)
		}
		if len(said) >= 42 && is(said) {
			return
		}
	}
}

// answers checks that the gateway answers an ARP request.
func (f *fake) answers() {
	f.t.Helper()
	frame := append(bytes.Repeat([]byte{0xff}, 6), 0x52, 0x54, 0, 0x68, 0x6f, 0x6c, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
		0x52, 0x54, 0, 0x68, 0x6f, 0x6c, 10, 0, 2, 15, 0, 0, 0, 0, 0, 0, 10, 0, 2, 2)
	f.hears(frame, "who the gateway is", func(said []byte) bool {
		return bytes.Equal(said[12:14], []byte{8, 6}) && said[21] == 2 && bytes.Equal(said[28:32], []byte{10, 0, 2, 2})
	})
}

// pid returns the id of the network's process.
func (f *fake) pid() int {
	f.t.Helper()
	all, err := Strays(f.dir)
	if err != nil || len(all) != 1 {
		f.t.Fatalf("networks of the machine: %+v %v", all, err)
	}
	return all[0].Process.PID
}

// gone waits until the machine has no network.
func (f *fake) gone() {
	f.t.Helper()
	within(f.t, "the network to end", func() bool {
		all, err := Strays(f.dir)
		return err == nil && len(all) == 0
	})
}

func within(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout waiting for: %s", what)
		}
	}
}

func networks(t *testing.T) *Networks {
	return New(Options{
		Apart:   os.Geteuid() == 0,
		Command: []string{"/proc/self/exe", serving}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Reach: func(context.Context) []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort("10.1.2.3:80")}
		},
	})
}

func ready(t *testing.T, l *Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestOutlives: a machine's network runs without the daemon, the next daemon takes it over, it is replaced if it is
// killed, and it ends with its machine. The next machine has another.
func TestOutlives(t *testing.T) {
	f, ctx := newFake(t), t.Context()
	open := holt.NetworkPolicy{Egress: holt.EgressOpen}
	first := networks(t)
	if err := first.Write(ctx, f.dir, open); err != nil {
		t.Fatal(err)
	}
	cuts := make(chan struct{}, 9)
	cut := func(context.Context) { cuts <- struct{}{} }
	l := first.Join(f.dir, false, cut)
	f.joined()
	ready(t, l)
	pid := f.pid()
	l.Release() // the daemon ends
	f.answers()
	if left, err := Leftover(f.dir); err != nil || len(left) != 0 {
		t.Errorf("taken for left over: %+v %v", left, err)
	}
	second := networks(t)
	l = second.Join(f.dir, true, cut)
	ready(t, l)
	f.answers()
	if now := f.pid(); now != pid {
		t.Errorf("the next daemon has process %d, not %d", now, pid)
	}
	if st, err := os.Stat(filepath.Join(f.dir, controlSocket)); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("control socket: %v %v", st, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.joined()
	if now := f.pid(); now == pid {
		t.Error("the killed process still runs")
	}
	within(t, "the guest to be told", func() bool { return len(cuts) == 1 })
	if err := second.Set(ctx, f.dir, holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"example.com"}}); err != nil {
		t.Error(err)
	}
	if err := f.process.Kill(); err != nil {
		t.Fatal(err)
	}
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
	f.gone()
	f.boot()
	l = second.Join(f.dir, false, cut)
	f.joined()
	ready(t, l)
	f.process.Kill() // nobody waits for it: the network sees that it is dead
	f.gone()
	l.Release()
	if len(cuts) != 1 {
		t.Errorf("cut was called %d times", len(cuts))
	}
}

// TestPolicyOfTheNext: a policy that is set without a process applies to the next one, with the servers of packages.
func TestPolicyOfTheNext(t *testing.T) {
	f, ctx, n := newFake(t), t.Context(), networks(t)
	p := holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: []string{"192.168.0.0/16"}}
	if err := n.Set(ctx, f.dir, p); err != nil {
		t.Fatal(err)
	}
	d, err := machine.OpenDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := readSettings(d)
	if err != nil || s.Policy.Egress != p.Egress || !slices.Equal(s.Policy.Allow, p.Allow) || len(s.Reach) != 1 {
		t.Errorf("%+v %v", s, err)
	}
	if err := n.Set(ctx, filepath.Join(f.dir, "nowhere"), p); err == nil {
		t.Error("a policy of a machine without a directory is written")
	}
	l := n.Join(f.dir, false, nil)
	f.joined()
	ready(t, l)
	if err := os.WriteFile(filepath.Join(f.dir, settingsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tell(ctx, f.dir); err == nil {
		t.Error("an unreadable policy is accepted")
	}
	f.process.Kill()
	if err := l.End(); err != nil {
		t.Error(err)
	}
}

// TestTotals: traffic is summed over processes, and the number of destinations is bounded.
func TestTotals(t *testing.T) {
	dir, err := machine.MakeDir(filepath.Join(t.TempDir(), "m"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	one := []holt.Traffic{{Destination: "a.example", Sent: 1, Received: 2, Connections: 1, Open: 1}}
	if err := readTotals(dir).write(dir, one); err != nil {
		t.Fatal(err)
	}
	two := readTotals(dir)
	if err := two.write(dir, []holt.Traffic{{Destination: "a.example", Sent: 10, Open: 1}, {Destination: "b.example", Refused: 3}}); err != nil {
		t.Fatal(err)
	}
	got, err := readTraffic(dir)
	want := []holt.Traffic{{Destination: "a.example", Sent: 11, Received: 2, Connections: 1, Open: 1}, {Destination: "b.example", Refused: 3}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	var many []holt.Traffic
	for i := range 3 * mostDestinations {
		many = append(many, holt.Traffic{Destination: string(rune('a'+i%26)) + string(rune(0x1000+i)), Sent: int64(i)})
	}
	all := sum(many, want)
	if total := holt.SumTraffic(all); len(all) != mostDestinations || total.Sent != holt.SumTraffic(many).Sent+11 || all[0].Destination != "" {
		t.Errorf("%d destinations, %d bytes, first %q", len(all), total.Sent, all[0].Destination)
	}
	for _, c := range []struct{ items, wants int }{{mostListed, mostListed}, {mostListed + 1, 0}} {
		list := "[{}" + strings.Repeat(",{}", c.items-1) + "]"
		if err := os.WriteFile(filepath.Join(dir.File(keptDir), trafficFile), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := readTraffic(dir); len(all) != c.wants || (err == nil) != (c.wants > 0) {
			t.Errorf("of %d destinations %d are read: %v", c.items, len(all), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir.File(keptDir), trafficFile), []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if anew := readTotals(dir); len(anew.before) != 0 {
		t.Errorf("of what cannot be read: %+v", anew.before)
	}
	if b, err := json.Marshal(all); err != nil || len(b) > mostFile {
		t.Errorf("%d bytes %v", len(b), err)
	}
}
