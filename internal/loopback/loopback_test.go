package loopback

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// TestBoth: who connects to either address of localhost is accepted, and Close ends both.
func TestBoth(t *testing.T) {
	l, err := Listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	want := []string{"127.0.0.1:" + port, "[::1]:" + port}
	if got := Addresses(l); !slices.Equal(got, want) {
		t.Fatalf("it listens at %v, want %v", got, want)
	}
	for _, at := range want {
		near, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil || far.LocalAddr().String() != at {
			t.Errorf("at %s: %v, %v", at, far, err)
		}
		far.Close()
		near.Close()
	}
	waits := make(chan error)
	go func() { _, err := l.Accept(); waits <- err }()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	for _, at := range want {
		if c, err := net.Dial("tcp", at); err == nil {
			c.Close()
			t.Errorf("%s still listens", at)
		}
	}
}

// TestTaken: if one of the two addresses is taken the error names it, and the other one is free again.
func TestTaken(t *testing.T) {
	for _, taken := range []string{"127.0.0.1:0", "[::1]:0"} {
		other, err := net.Listen("tcp", taken)
		if err != nil {
			t.Fatal(err)
		}
		at := other.Addr().String()
		_, port, _ := net.SplitHostPort(at)
		_, err = Listen("localhost:" + port)
		var op *net.OpError
		if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &op) || op.Addr.String() != at {
			t.Errorf("%s is taken: %v", at, err)
		}
		other.Close()
		l, err := Listen("localhost:" + port)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

// TestAddressAsGiven: an IP address is listened at alone.
func TestAddressAsGiven(t *testing.T) {
	for _, at := range []string{"127.0.0.1", "::1", "127.0.0.9"} {
		l, err := Listen(net.JoinHostPort(at, "0"))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if all := Addresses(l); len(all) != 1 || l.Addr().(*net.TCPAddr).IP.String() != at {
			t.Errorf("%s: %v", at, all)
		}
	}
	if _, err := Listen("localhost"); err == nil {
		t.Error("an address without a port is listened at")
	}
}

// TestAll: one listener has every address of 127.0.0.0/8, and none of this machine's others; beside another program it has
// what that leaves.
func TestAll(t *testing.T) {
	l, err := ListenAll("localhost:0")
	if err != nil || !All(l) {
		t.Fatal(l, err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if got, want := Addresses(l), []string{"127.0.0.1:" + port, "[::1]:" + port}; !slices.Equal(got, want) {
		t.Errorf("it listens at %v, want %v", got, want)
	}
	for _, host := range []string{"127.0.0.1", "127.64.0.3", "127.127.255.254", "::1"} {
		near, err := net.Dial("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		far, err := l.Accept()
		if err != nil || far.LocalAddr().(*net.TCPAddr).IP.String() != host {
			t.Errorf("at %s: %v, %v", host, far, err)
		}
		far.Close()
		near.Close()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("who came to %s was let in", c.LocalAddr())
			c.Close()
		}
	}()
	mine, _ := net.InterfaceAddrs()
	for _, a := range mine {
		if ip := a.(*net.IPNet).IP; !ip.IsLoopback() && ip.To4() != nil {
			if c, err := net.Dial("tcp", net.JoinHostPort(ip.String(), port)); err == nil {
				if _, err := c.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s answers", ip)
				}
				c.Close()
			}
		}
	}
	other, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, port, _ = net.SplitHostPort(other.Addr().String())
	beside, err := ListenAll("localhost:" + port)
	if err != nil || All(beside) || len(Addresses(beside)) != 2 {
		t.Fatal(beside, err)
	}
	beside.Close()
}
