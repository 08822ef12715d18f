package daemon_test

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/network"
)

// onHost is a policy that grants a port of the host's loopback, beside the internet.
func onHost(at net.Addr) *holt.NetworkPolicy {
	return &holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{fmt.Sprintf("host.holt.internal:%d", at.(*net.TCPAddr).Port)}}
}

// download is a server whose answers never end: a number a line, each one more.
type download struct {
	net.Listener
	conns atomic.Int64
}

func listenDownload(t *testing.T) *download {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := &download{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.conns.Add(1)
			go d.serve(c)
		}
	}()
	return d
}

func (d *download) serve(c net.Conn) {
	defer c.Close()
	w := bufio.NewWriter(c)
	for n := 1; ; n++ {
		fmt.Fprintln(w, n)
		if w.Flush() != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// loading keeps how far a download is that may miss nothing, and how it ended; try says how a connection is refused.
const loading = `
import os, socket, sys, time
def put(name, text):
    with open(name + '.new', 'w') as f: f.write(text)
    os.rename(name + '.new', name)
where, port = sys.argv[2], int(sys.argv[3])
if sys.argv[1] == 'try':
    began = time.time()
    try:
        s = socket.create_connection((where, port), timeout=30)
        print('connected', s.makefile().readline().strip())
    except socket.gaierror: print('no such name')
    except ConnectionRefusedError: print('refused')
    except ConnectionResetError: print('reset')
    except OSError as e: print(type(e), e)
    print('late' if time.time() - began > 5 else 'soon')
    sys.exit()
n = 0
s = socket.create_connection((where, port))
try:
    for line in s.makefile():
        n += 1
        if int(line) != n:
            put(sys.argv[4], 'missing')
            sys.exit()
        put(sys.argv[4], str(n))
    put(sys.argv[4], 'ended')
except OSError: put(sys.argv[4], 'reset')
`

// loads begins a download in a computer, into a file.
func (v *vm) loads(computer string, from *download, file string) {
	v.t.Helper()
	spec := holt.RunSpec{Argv: holt.OSStrings{"python3", "/root/loading.py", "load", "host.holt.internal", strconv.Itoa(from.port()), file}, User: "root", Cwd: "/root"}
	if _, err := v.Runs.Start(v.t.Context(), computer, spec, ""); err != nil {
		v.t.Fatal(err)
	}
	v.loaded(computer, file, 0)
}

func (d *download) port() int { return d.Addr().(*net.TCPAddr).Port }

// loaded waits until a download is beyond a line, and returns how far it is.
func (v *vm) loaded(computer, file string, line int) (n int) {
	v.t.Helper()
	within(v.t, computer+" to load", func() bool {
		said := v.says(computer, "cat /root/"+file+" 2>/dev/null || echo 0")
		var err error
		if n, err = strconv.Atoi(said); err != nil {
			v.t.Fatalf("%s: the download is %q", computer, said)
		}
		return n > line
	})
	return n
}

// tries connects from a computer; it must be answered soon.
func (v *vm) tries(computer, where string, port int, want string) {
	v.t.Helper()
	said := v.says(computer, fmt.Sprintf("python3 /root/loading.py try %s %d", where, port))
	if how, when, _ := strings.Cut(said, "\n"); how != want || when != "soon" {
		v.t.Errorf("%s to %s:%d: %s, %s; not %s", computer, where, port, how, when, want)
	}
}

// networkOf is the process that is the network of a computer.
func (v *vm) networkOf(computer string) int {
	v.t.Helper()
	c, err := v.Computers.Get(v.t.Context(), computer)
	if err != nil {
		v.t.Fatal(err)
	}
	all, err := network.Strays(v.dir + "/computers/" + string(c.ID))
	if err != nil || len(all) != 1 {
		v.t.Fatalf("networks of %s: %+v %v", computer, all, err)
	}
	return all[0].Process.PID
}

// received is how much a computer has received from the host.
func (v *vm) received(computer string) (bytes int64) {
	v.t.Helper()
	all, err := v.Networks.Traffic(v.t.Context(), computer)
	if err != nil {
		v.t.Fatal(err)
	}
	for _, one := range all.Destinations {
		if one.Destination == "host.holt.internal" {
			bytes = one.Received
		}
	}
	return bytes
}

func (v *vm) reach(computer string, egress holt.Egress, allow ...string) {
	v.t.Helper()
	if _, err := v.Networks.Set(v.t.Context(), computer, holt.NetworkPolicy{Egress: egress, Allow: allow}); err != nil {
		v.t.Fatal(err)
	}
}

// TestNetworks: a download goes on in a computer while its daemon is killed and replaced. A fork's ends, and
// it has what its parent may reach, and counts from nothing. A policy that changes cuts off what it does not
// allow any more, and what it refuses is refused at once. A network that is killed is back, one
// whose machine is killed is gone.
func TestNetworks(t *testing.T) {
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx, far := t.Context(), listenDownload(t)
	grant := fmt.Sprintf("host.holt.internal:%d", far.port())
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 256, Network: onHost(far.Addr())}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Files.Write(ctx, "curie", "/root/loading.py", holt.WriteSpec{}, strings.NewReader(loading)); err != nil {
		t.Fatal(err)
	}
	v.loads("curie", far, "first")
	v.survives(far)
	v.itself()
	v.forked(far, grant)
	v.policies(far, grant)
	v.replaced(far)
	v.pausedTraffic()
	v.wrecked()
	if _, err := v.Computers.Delete(ctx, "curie", ""); err != nil {
		t.Error(err)
	}
	endAll(t, v.process)
}

// survives: nobody in the computer notices that the daemon was killed.
func (v *vm) survives(far *download) {
	t := v.t
	t.Helper()
	n, pid := v.loaded("curie", "first", 20), v.networkOf("curie")
	v.kill()
	time.Sleep(200 * time.Millisecond) // of which the download makes ten lines
	v.again("")
	n = v.loaded("curie", "first", n+10)
	if now := v.networkOf("curie"); now != pid {
		t.Errorf("the next daemon has network %d, not %d", now, pid)
	}
	if far.conns.Load() != 1 {
		t.Errorf("the download took %d connections", far.conns.Load())
	}
	v.loaded("curie", "first", n+10)
}

// itself: a computer asks for itself, by no credential, and for nobody else.
func (v *vm) itself() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	ask := func(path, body string) string {
		t.Helper()
		return v.says("curie", fmt.Sprintf(`python3 -c "
import sys, urllib.request, urllib.error
try: print(urllib.request.urlopen('http://holt.internal/v1/self'+sys.argv[1], data=sys.argv[2].encode() or None).read().decode())
except urllib.error.HTTPError as e: print(e.code, e.read().decode())" '%s' '%s'`, path, body))
	}
	if said := ask("", ""); !strings.Contains(said, `"name":"curie"`) {
		t.Errorf("who am I: %s", said)
	}
	if said := ask("/checkpoint", `{"name":"by-itself"}`); !strings.Contains(said, "by-itself") {
		t.Errorf("a checkpoint: %s", said)
	}
	if c, err := v.History.GetCheckpoint(ctx, "curie", "by-itself"); err != nil || c.Name != "by-itself" {
		t.Errorf("%+v %v", c, err)
	}
	for path, body := range map[string]string{"/fork": `{"network":{"egress":"open"}}`, "/../computers": "", "/network": `{"egress":"open"}`} {
		if said := ask(path, body); !strings.HasPrefix(said, "40") {
			t.Errorf("%s %s: %s", path, body, said)
		}
	}
	if said := ask("/fork", `{"name":"dirac"}`); !strings.Contains(said, `"name":"dirac"`) || strings.Contains(said, "error") {
		t.Errorf("a fork: %s", said)
	}
	if c, err := v.Computers.Get(ctx, "dirac"); err != nil || c.Parent == nil || c.Parent.Name != "curie" {
		t.Errorf("%+v %v", c, err)
	}
	v.remove("dirac")
}

// forked: a fork reaches what its parent does, with connections and counts of its own.
func (v *vm) forked(far *download, grant string) {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	if _, err := v.Computers.Fork(ctx, "curie", holt.ComputerForkSpec{Name: "bohr"}, ""); err != nil {
		t.Fatal(err)
	}
	if bytes := v.received("bohr"); bytes != 0 {
		t.Errorf("the fork has received %d bytes before it asked for any", bytes)
	}
	v.until("bohr", "cat /root/first", "reset")
	if p, err := v.Networks.Get(ctx, "bohr"); err != nil || p.Egress != holt.EgressOpen || len(p.Allow) != 1 || p.Allow[0] != grant {
		t.Errorf("the fork may reach %+v %v", p, err)
	}
	n := v.loaded("curie", "first", 0)
	v.loads("bohr", far, "second")
	v.loaded("curie", "first", n+10)
	if fork, parent := v.received("bohr"), v.received("curie"); fork == 0 || fork >= parent {
		t.Errorf("the fork has received %d bytes, its parent %d", fork, parent)
	}
	if _, err := v.Computers.Fork(ctx, "bohr", holt.ComputerForkSpec{Name: "kelvin", Network: &holt.NetworkPolicy{Egress: holt.EgressOff}}, ""); err != nil {
		t.Fatal(err)
	}
	v.tries("kelvin", "host.holt.internal", far.port(), "refused")
	v.tries("bohr", "host.holt.internal", far.port(), "connected 1")
	v.remove("kelvin")
	v.remove("bohr")
}

// policies: they count at once.
func (v *vm) policies(far *download, grant string) {
	t := v.t
	t.Helper()
	other := listenDownload(t)
	v.tries("curie", "host.holt.internal", other.port(), "refused")
	v.tries("curie", "10.255.255.1", 80, "refused") // a private network
	v.reach("curie", holt.EgressOff, grant)
	v.until("curie", "cat /root/first", "reset")
	v.tries("curie", "host.holt.internal", far.port(), "refused")
	v.tries("curie", "198.41.0.4", 53, "refused")
	v.tries("curie", "example.com", 80, "no such name")
	v.reach("curie", holt.EgressAllow, grant, "*.example.org")
	v.tries("curie", "host.holt.internal", far.port(), "connected 1")
	v.tries("curie", "example.com", 80, "no such name")
	v.tries("curie", "198.41.0.4", 53, "refused")
	v.serves()
	if all, err := v.Networks.Traffic(t.Context(), "curie"); err != nil || all.Refused < 5 {
		t.Errorf("%+v %v", all, err)
	}
}

// serves: what runs in a computer that may reach little is told of the proxy, and asks its own servers without it.
func (v *vm) serves() {
	v.t.Helper()
	said := v.says("curie", `python3 -c "
import http.server, os, socket, threading, urllib.request
print(os.environ['http_proxy'])
s = http.server.ThreadingHTTPServer(('', 8000), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
for host in socket.gethostname(), '10.0.2.15', '0.0.0.0', '127.0.1.1', 'localhost':
    try: print(host, urllib.request.urlopen('http://%s:8000/' % host, timeout=60).status)
    except Exception as e: print(host, e)" 2>/dev/null`)
	want := "http://proxy.holt.internal:3128\ncurie 200\n10.0.2.15 200\n0.0.0.0 200\n127.0.1.1 200\nlocalhost 200"
	if strings.TrimSpace(said) != want {
		v.t.Errorf("its own server, asked by its names: %s", said)
	}
}

// replaced: a network that is killed is back within seconds; what it carried has ended.
func (v *vm) replaced(far *download) {
	t := v.t
	t.Helper()
	v.loads("curie", far, "third")
	if err := unix.Kill(v.networkOf("curie"), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	v.until("curie", "cat /root/third", "reset")
	v.tries("curie", "host.holt.internal", far.port(), "connected 1")
	t.Logf("back after at most %v", time.Since(began))
	v.tries("curie", "example.com", 80, "no such name") // by the same policy
}

// pausedTraffic: what went where is remembered over a pause, and asked for during it.
func (v *vm) pausedTraffic() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	before := v.received("curie")
	if _, err := v.Computers.Pause(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	if now := v.received("curie"); now < before || before == 0 {
		t.Errorf("while it is paused it has received %d bytes, before %d", now, before)
	}
	v.reach("curie", holt.EgressOff)
	if _, err := v.Computers.Resume(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	v.tries("curie", "198.41.0.4", 53, "refused")
	if now := v.received("curie"); now < before {
		t.Errorf("afterwards it has received %d bytes, before %d", now, before)
	}
}

// wrecked: of a machine that is killed no network is left.
func (v *vm) wrecked() {
	t := v.t
	t.Helper()
	left, err := network.Strays(v.dir)
	if err != nil || len(left) != 1 {
		t.Errorf("%+v %v", left, err)
	}
	v.wreck()
	within(t, "its network to end", func() bool {
		left, err := network.Strays(v.dir)
		return err == nil && len(left) == 0
	})
}
