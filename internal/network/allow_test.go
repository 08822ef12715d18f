package network

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/network/netstack"
)

const envInternet = "HOLT_TEST_INTERNET"

// registry is an address of a fake internet in a namespace of the test. It echoes at port 7.
var registry = netip.MustParseAddrPort("93.184.216.34:7")

// withInternet runs the test again in its own network namespace. It returns false outside of that.
func withInternet(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envInternet) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=120s")
		cmd.Env = append(os.Environ(), envInternet+"=1")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in its own network: %v\n%s", err, out)
		}
		return false
	}
	ip := func(words string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	far := make(chan net.Listener)
	tid := make(chan int)
	linked := make(chan struct{})
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		tid <- unix.Gettid()
		<-linked
		for _, words := range []string{"link set lo up", "addr add 198.18.0.2/24 dev far", "link set far up", "addr add 93.184.216.34/32 dev lo"} {
			ip(words)
		}
		l, err := net.Listen("tcp4", registry.String())
		if err != nil {
			t.Error(err)
		}
		far <- l
	}()
	there := <-tid
	ip("link set lo up")
	ip("link add near type veth peer name far")
	ip(fmt.Sprintf("link set far netns %d", there))
	ip("addr add 198.18.0.1/24 dev near")
	ip("link set near up")
	ip("route add default via 198.18.0.2")
	close(linked)
	l := <-far
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	return true
}

// peer is a TCP connection of the guest that the test implements.
type peer struct {
	f        *fake
	port     uint16
	seq, ack uint32
}

const (
	flagSYN = 2
	flagRST = 4
	flagPSH = 8
	flagACK = 16
)

// hear sends a segment, and waits for a matching one.
func (p *peer) hear(flags byte, payload, what string, is func(flags byte, seq uint32, payload string) bool) {
	p.f.t.Helper()
	from, to := []byte{10, 0, 2, 15}, registry.Addr().AsSlice()
	p.f.hears(segment(p.port, registry, p.seq, p.ack, flags, payload), what, func(said []byte) bool {
		if len(said) < 54 || said[12] != 8 || said[13] != 0 || said[23] != 6 || !slices.Equal(said[26:30], to) || !slices.Equal(said[30:34], from) || binary.BigEndian.Uint16(said[36:]) != p.port {
			return false
		}
		end := min(14+int(binary.BigEndian.Uint16(said[16:])), len(said))
		return is(said[47], binary.BigEndian.Uint32(said[38:]), string(said[min(34+int(said[46]>>4)*4, end):end]))
	})
}

// connects reports whether a connection to the registry succeeds.
func (f *fake) connects(port uint16) (p *peer, ok bool) {
	f.t.Helper()
	p = &peer{f: f, port: port, seq: uint32(port) << 8}
	p.hear(flagSYN, "", "whether it connects", func(flags byte, seq uint32, _ string) bool {
		ok = flags&flagSYN != 0
		p.ack = seq + 1
		return ok || flags&flagRST != 0
	})
	p.seq++
	return p, ok
}

// echoes sends text that is neither HTTP nor TLS, and reads it back.
func (p *peer) echoes(said string) {
	said = "?" + said
	p.f.t.Helper()
	p.hear(flagPSH|flagACK, said, "what it said", func(flags byte, seq uint32, heard string) bool {
		if flags&flagRST != 0 {
			p.f.t.Fatalf("%q: the connection was reset", said)
		}
		return seq == p.ack && heard == said
	})
	p.seq += uint32(len(said))
	p.ack += uint32(len(said))
}

// TestAllowedOutlives: a connection to an allowed name continues after a restart of the daemon and after changes of the
// policy, until the name is removed. The next process knows the addresses of names, after a kill and after a pause of
// any length. Unreadable files of names are ignored.
func TestAllowedOutlives(t *testing.T) {
	if !withInternet(t) {
		return
	}
	f, ctx := newFake(t), t.Context()
	allow := func(all ...string) holt.NetworkPolicy {
		return holt.NetworkPolicy{Egress: holt.EgressAllow, Allow: all}
	}
	first := networks(t)
	if err := first.Write(ctx, f.dir, allow("registry.example")); err != nil {
		t.Fatal(err)
	}
	cut := func(context.Context) {}
	paused := time.Now().Add(-48 * time.Hour)
	f.knows(names{Rested: paused, Known: []netstack.Known{{Name: "registry.example", Address: registry.Addr(), Until: paused.Add(9 * time.Minute)}}})
	l := first.Join(f.dir, true, cut)
	f.joined()
	ready(t, l)
	kept, ok := f.connects(2001)
	if !ok {
		t.Fatal("after a pause an address of a known name is refused")
	}
	kept.echoes("before")
	l.Release() // the daemon ends
	second := networks(t)
	if err := second.Write(ctx, f.dir, allow("registry.example")); err != nil {
		t.Fatal(err)
	}
	l = second.Join(f.dir, true, cut)
	ready(t, l)
	if err := tell(ctx, f.dir); err != nil {
		t.Fatal(err)
	}
	kept.echoes("another daemon")
	if err := second.Set(ctx, f.dir, allow("another.example", "registry.example")); err != nil {
		t.Fatal(err)
	}
	kept.echoes("one more")
	if err := unix.Kill(f.pid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.joined()
	next, ok := f.connects(2002)
	if !ok {
		t.Fatal("the next process knows no name")
	}
	next.echoes("from another process")
	if err := second.Set(ctx, f.dir, allow("another.example")); err != nil {
		t.Fatal(err)
	}
	next.hear(flagACK|flagPSH, "more", "that it was reset", func(flags byte, _ uint32, _ string) bool { return flags&flagRST != 0 })
	if _, ok := f.connects(2003); ok {
		t.Error("a removed name is still reachable")
	}
	f.process.Kill()
	f.process.Wait()
	if err := l.End(); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(filepath.Join(f.dir, keptDir, namesFile))
	var left names
	if err != nil || json.Unmarshal(b, &left) != nil || len(left.Known) != 1 || time.Since(left.Rested) > time.Minute {
		t.Errorf("what is left: %s %v", b, err)
	}
	if err := second.Write(ctx, f.dir, allow("registry.example")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, keptDir, namesFile), b[:len(b)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	f.boot()
	l = second.Join(f.dir, false, cut)
	f.joined()
	if _, ok := f.connects(2004); ok {
		t.Error("a name of an unreadable file is used")
	}
	f.process.Kill()
	if err := l.End(); err != nil {
		t.Error(err)
	}
}

// knows writes down what the process finds.
func (f *fake) knows(n names) {
	f.t.Helper()
	if err := keep(dirOf(f.t, f.dir), namesFile, n); err != nil {
		f.t.Fatal(err)
	}
}

// FuzzNames: only valid names of the file are used, up to the maximum, and they expire.
func FuzzNames(f *testing.F) {
	for _, one := range []string{
		`{"known":[{"name":"a.example","address":"93.184.216.34","until":"2999-01-01T00:00:00Z"}]}`, `{"rested":"1000-01-01T00:00:00Z","known":[{"name":"A","address":"::1"}]}`, `{"known":`, `[]`, `null`,
	} {
		f.Add([]byte(one))
	}
	s, err := netstack.New(netstack.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, b []byte) {
		var n names
		if json.Unmarshal(b, &n) != nil {
			return
		}
		s.Recall(n.at(time.Now()))
		all, _ := s.Known()
		for _, one := range all {
			if !one.Address.Is4() || one.Name == "" || one.Name != strings.ToLower(one.Name) || time.Until(one.Until) > 24*time.Hour {
				t.Errorf("%+v", one)
			}
		}
		if _, err := json.Marshal(names{Known: all}); err != nil || len(all) > 4096 {
			t.Errorf("%d names: %v", len(all), err)
		}
	})
}

func dirOf(t *testing.T, path string) *machine.Dir {
	t.Helper()
	d, err := machine.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}
