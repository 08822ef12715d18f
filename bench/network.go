package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

const networkAbout = `
From a program in a computer to one on the host's loopback, over TCP: both are the load generator. *Holt*: the computer's own network process, with its policy, its
names and its counts. *QEMU's*: the user network that QEMU brings (` + "`-netdev user`" + `, libslirp), which runs in QEMU itself and refuses nothing; the same
daemon, with a QEMU that is given it instead. A *port* of the guest: from a program of the host to one in it, through the daemon and the guest's agent, as
` + "`holt computer forward`" + ` has it, against a forwarded port of QEMU's (` + "`hostfwd`" + `), which is open to all programs of the host.`

const (
	holtColumn  = "holt"
	slirpColumn = "QEMU's"
	// loadPort is where the load generator listens in a guest.
	loadPort = 9000
	// gateway is the host, as a guest sees it in both networks.
	gateway = "10.0.2.2"
)

// slirp is a QEMU whose guest has QEMU's own network. The one that the daemon says is there too, for whom it waits, with no guest.
const slirp = `#!/bin/bash
args=("$@")
for i in "${!args[@]}"; do
	case "${args[i]}" in stream,id=net,*)
		args[i]=${args[i]/id=net,/id=idle,}
		args+=(-netdev user,id=net,ipv6=off,hostfwd=tcp:%s-:%d) ;;
	esac
done
exec %s "${args[@]}"
`

// networked is a computer whose network is measured.
type networked struct {
	d    *daemon
	name string
	port string // of the load generator on the host
	// connect connects to the load generator in the guest.
	connect func(context.Context) (io.ReadWriteCloser, error)
	serving holt.RunID // that load generator
}

// networkSection measures what goes through a computer's network.
func networkSection(ctx context.Context, d *daemon, name, dir string) (*section, error) {
	port, end, err := serveHost(ctx, d.b)
	if err != nil {
		return nil, err
	}
	other, forwarded, err := startSlirp(ctx, d.b, dir)
	if err != nil {
		return nil, err
	}
	places := []*networked{
		{d: d, name: name, port: port, connect: func(ctx context.Context) (io.ReadWriteCloser, error) {
			return d.client.Ports.Connect(ctx, name, holt.PortAddress{Port: loadPort})
		}},
		{d: other, name: "slirp", port: port, connect: func(ctx context.Context) (io.ReadWriteCloser, error) {
			var n net.Dialer
			return n.DialContext(ctx, "tcp4", forwarded)
		}},
	}
	for _, n := range places {
		if err := n.open(ctx); err != nil {
			return nil, err
		}
	}
	s := &section{
		title: "Computers: the network", about: networkAbout, columns: []string{holtColumn, slirpColumn},
		ratios: [][2]string{{holtColumn, slirpColumn}},
	}
	mb, n := strconv.Itoa(d.b.channelMB), strconv.Itoa(10*d.b.runs)
	for _, w := range []work[*networked]{
		{name: "into the guest, one connection", unit: megabytes, measure: through(loaded.megabytes, "fetch", "-mb", mb)},
		{name: "out of the guest, one connection", unit: megabytes, measure: through(loaded.megabytes, "send", "-mb", mb)},
		{name: "connections, one after the other", unit: perSecond, measure: through(loaded.perSecond, "dial", "-n", n)},
		{name: "round trips on one", unit: perSecond, measure: through(loaded.perSecond, "echo", "-n", n)},
		{name: "into a port of the guest", unit: megabytes, measure: moves((*rawMachine).into)},
		{name: "out of a port of the guest", unit: megabytes, measure: moves((*rawMachine).out)},
		{name: "connections to a port, each with an answer", unit: millis, measure: func(ctx context.Context, n *networked) (float64, error) {
			return measureRuns(ctx, caller{n.answers, n.d.b.runs})
		}},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, w, []column[*networked]{{holtColumn, places[0]}, {slirpColumn, places[1]}})
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, errors.Join(d.client.Runs.Signal(ctx, places[0].serving, "SIGKILL", ""), end(), other.end())
}

// through makes a work of a run of the load generator in the guest.
func through(figure func(loaded) float64, args ...string) func(context.Context, *networked) (float64, error) {
	return func(ctx context.Context, n *networked) (float64, error) {
		out, err := n.d.run(ctx, n.name, append([]string{guestLoad, args[0], "-addr", net.JoinHostPort(gateway, n.port)}, args[1:]...)...)
		if err != nil {
			return nan, err
		}
		l, err := parseLoaded(out)
		return figure(l), err
	}
}

// open brings the load generator, and lets the guest reach the one on the host.
func (n *networked) open(ctx context.Context) error {
	policy := holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{"host.holt.internal:" + n.port}}
	_, err := n.d.client.Networks.Set(ctx, n.name, policy)
	if err != nil {
		return err
	}
	n.serving, err = n.d.serve(ctx, n.name)
	return err
}

// moves has bytes go through a port of the guest, once it has answered.
func moves(way func(*rawMachine, context.Context) (float64, error)) func(context.Context, *networked) (float64, error) {
	return func(ctx context.Context, n *networked) (float64, error) {
		conn, err := n.connect(ctx)
		if err != nil {
			return nan, err
		}
		defer conn.Close()
		r := &rawMachine{conn: conn, bytes: int64(n.d.b.channelMB) << 20}
		if err := r.echo(ctx); err != nil {
			return nan, err
		}
		return way(r, ctx)
	}
}

// answers connects to a port of the guest and has it answer.
func (n *networked) answers(ctx context.Context) error {
	conn, err := n.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return (&rawMachine{conn: conn}).echo(ctx)
}

// startSlirp starts a daemon with a computer in QEMU's own network, and returns the address that is its load generator's on the host.
func startSlirp(ctx context.Context, b *bench, dir string) (*daemon, string, error) {
	const program = "qemu-system-x86_64"
	real, err := exec.LookPath(program)
	if err != nil {
		return nil, "", err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0") // a port that is free
	if err != nil {
		return nil, "", err
	}
	forwarded := l.Addr().String()
	l.Close()
	path := filepath.Join(dir, "slirp")
	err = errors.Join(os.MkdirAll(path, 0o755), os.WriteFile(filepath.Join(path, program), fmt.Appendf(nil, slirp, forwarded, loadPort, real), 0o755))
	if err != nil {
		return nil, "", err
	}
	// In a jail QEMU reaches nothing itself: its daemon cannot make one.
	d, err := startDaemonWith(ctx, b, filepath.Join(dir, "slirp-data"), "qemu", path, []string{"setpriv", "--bounding-set=-sys_admin"})
	if err != nil {
		return nil, "", err
	}
	if _, err := d.cli(ctx, "computer", "create", "--name", "slirp", "--template", b.template); err != nil {
		return nil, "", err
	}
	return d, forwarded, d.settle(ctx, "slirp")
}

// serveHost has the load generator listen on the host's loopback, and returns its port.
func serveHost(ctx context.Context, b *bench) (port string, end func() error, err error) {
	cmd := exec.CommandContext(ctx, b.load, "serve", "-addr", "127.0.0.1:0")
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = b.own("the load generator", func() error {
		cmd.Process.Kill()
		cmd.Wait() // killed is how it ends
		return nil
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	_, port, err = net.SplitHostPort(strings.TrimSpace(line))
	return port, end, err
}

// serve has the load generator listen in a computer.
func (d *daemon) serve(ctx context.Context, computer string) (holt.RunID, error) {
	if err := d.bring(ctx, computer); err != nil {
		return "", err
	}
	argv := []string{guestLoad, "serve", "-addr", fmt.Sprint("0.0.0.0:", loadPort)}
	r, err := d.client.Runs.Start(ctx, computer, holt.RunSpec{Argv: holt.OSStrings(argv), User: "root", Cwd: "/"}, "")
	if err != nil {
		return "", err
	}
	err = d.client.Runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error {
		if e.Kind == holt.RunStdout {
			return errMeasured
		}
		return nil
	})
	if !errors.Is(err, errMeasured) {
		return "", errors.Join(errors.New("the load generator does not listen in the guest"), err)
	}
	return r.ID, nil
}
