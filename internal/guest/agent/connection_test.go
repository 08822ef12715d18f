package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const envNetworks = "HOLT_TEST_NETWORKS"

// TestEndConnections: readers of external connections get an error, in the
// machine's network namespace and in those of containers; connections within
// the machine continue.
func TestEndConnections(t *testing.T) {
	needRoot(t)
	if os.Getenv(envNetworks) == "" { // a machine of its own: no other process's connections are seen from there
		cmd := exec.Command("/bin/sh", "-c", `mount -t proc proc /proc && exec "$@"`, "sh", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), envNetworks+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in its own machine: %v\n%s", err, out)
		}
		return
	}
	if os.Getpid() != 1 {
		t.Fatal("this is no machine of its own")
	}
	l := &networks{T: t}
	l.ip("link set lo up")
	l.outside = l.namespaceOfThread()
	one, two := l.container(), l.container()
	l.join("out0", "10.9.0.2/24", "1", "10.9.0.1/24")
	l.join("out1", "10.9.1.2/24", one.pid, "10.9.1.1/24")
	l.join("out2", "10.9.2.2/24", two.pid, "10.9.2.1/24")
	l.ip("link add bridge type veth peer name eth1")
	l.ip("link set eth1 netns " + one.pid)
	l.up("bridge", "172.17.0.1/24")
	l.in(one.fd, func() { l.up("eth1", "172.17.0.2/24") })
	zombie := exec.Command("unshare", "--net", "true") // nobody has waited for it: it is listed, and has no network
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	defer zombie.Wait()

	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	elsewhere := map[string]net.Conn{
		"the machine's":       l.connect(int(own.Fd()), l.outside, "10.9.0.1"),
		"a container's":       l.connect(one.fd, l.outside, "10.9.1.1"),
		"another container's": l.connect(two.fd, l.outside, "10.9.2.1"),
	}
	within := map[string]net.Conn{
		"from a container to the machine": l.connect(one.fd, int(own.Fd()), "172.17.0.1"),
		"from the machine to a container": l.connect(int(own.Fd()), one.fd, "172.17.0.2"),
		"of a container's loopback":       l.connect(two.fd, two.fd, "127.0.0.1"),
	}
	read := map[string]chan error{}
	for name, c := range elsewhere {
		heard := make(chan error, 1)
		read[name] = heard
		go func() { _, err := c.Read(make([]byte, 1)); heard <- err }()
	}
	var said strings.Builder
	ended, err := endConnections(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), "/proc")
	if err != nil || ended != len(elsewhere) || said.Len() > 0 {
		t.Errorf("%d are ended, %v; %s", ended, err, said.String())
	}
	for name, heard := range read {
		select {
		case err := <-heard:
			if !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s: its reader waits", name)
		}
	}
	for name, c := range within {
		c.SetDeadline(time.Now().Add(5 * time.Second))
		b := make([]byte, 2)
		if _, err := io.WriteString(c, "hi"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if _, err := io.ReadFull(c, b); err != nil || string(b) != "hi" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for range 20 { // no thread has stayed elsewhere
		if at, err := os.Readlink("/proc/self/ns/net"); err != nil || at != link(t, int(own.Fd())) {
			t.Errorf("the process is in %s, %v", at, err)
		}
	}
}

// networks are the network namespaces of a machine, and one outside, which no process is in.
type networks struct {
	*testing.T
	outside int
}

type container struct {
	fd  int
	pid string
}

func link(t *testing.T, fd int) string {
	t.Helper()
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func (l *networks) ip(words string) {
	if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
		l.Errorf("ip %s: %v: %s", words, err, out)
	}
}

func (l *networks) up(device, address string) {
	l.ip("addr add " + address + " dev " + device)
	l.ip("link set " + device + " up")
}

// thread runs do on a thread that ends with it and is not the main thread, which cannot end.
func (l *networks) thread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			l.thread(do)
			runtime.UnlockOSThread()
			return
		}
		do()
	}()
	<-done
}

// in runs do in a network namespace. Sockets that it opens stay there.
func (l *networks) in(namespace int, do func()) {
	l.thread(func() {
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			l.Error(err)
			return
		}
		do()
	})
}

func (l *networks) open(path string) int {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		l.Error(err)
		return -1
	}
	l.Cleanup(func() { unix.Close(fd) })
	return fd
}

func (l *networks) namespaceOfThread() (fd int) {
	l.thread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			l.Error(err)
			return
		}
		fd = l.open("/proc/thread-self/ns/net")
	})
	return fd
}

// container returns a network namespace with a process of the machine.
func (l *networks) container() container {
	here := link(l.T, l.open("/proc/thread-self/ns/net"))
	cmd := exec.Command("unshare", "--net", "sleep", "600")
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	path := filepath.Join("/proc", fmt.Sprint(cmd.Process.Pid), "ns/net")
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if at, err := os.Readlink(path); err == nil && at != here {
			break
		}
		if time.Since(began) > patience {
			l.Fatal("it has no network of its own")
		}
	}
	out := container{l.open(path), fmt.Sprint(cmd.Process.Pid)}
	l.in(out.fd, func() { l.ip("link set lo up") })
	return out
}

// join creates a link between a process's namespace and the outside.
func (l *networks) join(device, address, pid, far string) {
	l.in(l.outside, func() {
		l.ip("link add far-" + device + " type veth peer name " + device)
		l.ip("link set " + device + " netns " + pid)
		l.up("far-"+device, far)
	})
	l.in(l.open("/proc/"+pid+"/ns/net"), func() { l.up(device, address) })
}

// connect opens a connection to an echo server at an address of another namespace.
func (l *networks) connect(from, to int, address string) (c net.Conn) {
	l.in(to, func() {
		listener, err := net.Listen("tcp4", address+":0")
		if err != nil {
			l.Error(err)
			return
		}
		l.Cleanup(func() { listener.Close() })
		address = listener.Addr().String()
		go func() {
			if c, err := listener.Accept(); err == nil {
				io.Copy(c, c)
			}
		}()
	})
	l.in(from, func() {
		var err error
		if c, err = net.DialTimeout("tcp4", address, patience); err != nil {
			l.Error(err)
		}
	})
	if c == nil {
		l.Fatal("no connection")
	}
	l.Cleanup(func() { c.Close() })
	return c
}
