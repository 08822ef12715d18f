package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/qemu"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
	"holt/internal/image"
)

const channelAbout = `
Bytes in and out of a machine. *Raw channel*: the port that files travel on, with a guest that only reads and drops, or
writes, and a host that does the same: the bound for everything built on it. *Control channel*: a stream of the guest
agent's protocol (resync, multiplexing, chunks) that ends in the agent. *Files API*: a file on the guest's tmpfs, from the
Go client through the daemon and the agent. *Port*: a TCP connection to the load generator in the guest, as ` + "`holt computer forward`" + ` makes one. A round trip is
one byte, a ` + "`hello`" + `, a ` + "`stat`" + `, one byte.`

const (
	controlColumn = "control channel"
	filesColumn   = "files API"
	portColumn    = "port"
)

// mover moves bytes into a guest and out of it.
type mover interface {
	into(ctx context.Context) (float64, error) // MB/s
	out(ctx context.Context) (float64, error)  // MB/s
	echo(ctx context.Context) error
}

// channelSection measures the channels.
func channelSection(ctx context.Context, d *daemon, name, dir string) (*section, error) {
	raw, err := openRaw(ctx, d.b, dir)
	if err != nil {
		return nil, err
	}
	control, err := openControl(ctx, d.b, dir)
	if err != nil {
		return nil, err
	}
	port, err := openPort(ctx, d, name)
	if err != nil {
		return nil, err
	}
	columns := []column[mover]{{rawColumn, raw}, {controlColumn, control}, {filesColumn, &filesMover{d, name}}, {portColumn, port}}
	s := &section{title: "Channels into a computer", about: channelAbout, columns: []string{rawColumn, controlColumn, filesColumn, portColumn}}
	for _, w := range []work[mover]{
		{name: "into the guest", unit: megabytes, targets: []target{{controlColumn, "", 60}},
			measure: func(ctx context.Context, m mover) (float64, error) { return m.into(ctx) }},
		{name: "out of the guest", unit: megabytes, targets: []target{{controlColumn, "", 300}},
			measure: func(ctx context.Context, m mover) (float64, error) { return m.out(ctx) }},
		{name: "round trip", unit: millis, measure: func(ctx context.Context, m mover) (float64, error) {
			return measureRuns(ctx, caller{m.echo, d.b.runs})
		}},
	} {
		f, err := rounds(ctx, d.b, d.b.rounds, w, columns)
		if err != nil {
			return nil, err
		}
		s.figures = append(s.figures, f)
	}
	return s, errors.Join(port.close(), control.close(), raw.close())
}

// image is the template's, with the guest agent of this checkout.
func (b *bench) image(ctx context.Context) (image.Image, error) {
	guest, err := os.ReadFile(filepath.Join("cmd", "holt", "guest", "holt-guest"))
	if err != nil {
		return image.Image{}, fmt.Errorf("no guest agent (make build makes it): %w", err)
	}
	store, err := image.Open(b.imageDir, image.Options{GuestBinary: guest, Log: b.log})
	if err != nil {
		return image.Image{}, err
	}
	return store.Get(ctx, b.template)
}

// openMachine boots a machine outside any daemon.
func openMachine(ctx context.Context, b *bench, dir, name string, change func(*machine.Spec, *qemu.Engine, image.Image) error) (machine.Machine, func() error, error) {
	img, err := b.image(ctx)
	if err != nil {
		return nil, nil, err
	}
	engine, err := qemu.Open(ctx, qemu.Options{Log: b.log})
	if err != nil {
		return nil, nil, err
	}
	own := filepath.Join(dir, name)
	spec := machine.Spec{ID: "bench-" + name, Dir: own, Kernel: img.Kernel, Initrd: img.Initrd, Args: img.Args, CPUs: 1, MemoryMB: 1024}
	if err := errors.Join(os.RemoveAll(own), os.MkdirAll(own, 0o700)); err != nil {
		return nil, nil, err
	}
	if err := change(&spec, engine, img); err != nil {
		return nil, nil, err
	}
	m, err := engine.Start(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	return m, b.own("the machine "+name, m.Kill), nil
}

// rawMachine is a connection to the load generator in a guest.
type rawMachine struct {
	conn  io.ReadWriteCloser
	bytes int64
	close func() error
}

func openRaw(ctx context.Context, b *bench, dir string) (*rawMachine, error) {
	m, end, err := openMachine(ctx, b, dir, "raw", func(spec *machine.Spec, _ *qemu.Engine, img image.Image) error {
		initrd := filepath.Join(spec.Dir, "initrd")
		spec.Initrd = initrd
		return withInit(initrd, img.Initrd, b.load)
	})
	if err != nil {
		return nil, err
	}
	conn, err := m.Dial(ctx, machine.PortFiles)
	if err != nil {
		return nil, err
	}
	r := &rawMachine{conn: conn, bytes: int64(b.channelMB) << 20}
	r.close = func() error { return errors.Join(conn.Close(), end()) }
	return r, r.echo(ctx)
}

// openPort connects to the load generator in a computer.
func openPort(ctx context.Context, d *daemon, name string) (*rawMachine, error) {
	serving, err := d.serve(ctx, name)
	if err != nil {
		return nil, err
	}
	conn, err := d.client.Ports.Connect(ctx, name, holt.PortAddress{Port: loadPort})
	if err != nil {
		return nil, err
	}
	r := &rawMachine{conn: conn, bytes: int64(d.b.channelMB) << 20}
	r.close = func() error {
		return errors.Join(conn.Close(), d.client.Runs.Signal(ctx, serving, "SIGKILL", ""))
	}
	return r, r.echo(ctx)
}

// withInit writes an initramfs that is another one with a different /init: the
// kernel unpacks archives one after the other, and the last file wins.
func withInit(name, base, init string) error {
	all, err := os.ReadFile(base)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(init)
	if err != nil {
		return err
	}
	out := bytes.NewBuffer(all)
	pad := func() { out.Write(make([]byte, (4-out.Len()%4)%4)) }
	for i, f := range []struct {
		name string
		mode uint32
		data []byte
	}{{"init", unix.S_IFREG | 0o755, program}, {"TRAILER!!!", 0, nil}} {
		pad()
		// The "newc" format: Documentation/driver-api/early-userspace/buffer-format.rst of Linux.
		fmt.Fprintf(out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
			i+1, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.name)+1, 0, f.name)
		pad()
		out.Write(f.data)
	}
	pad()
	return os.WriteFile(name, out.Bytes(), 0o600)
}

// deadline has the connection end with ctx.
func (r *rawMachine) deadline(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { r.conn.Close() })
}

// echo sends a byte and waits for it.
func (r *rawMachine) echo(ctx context.Context) error {
	defer r.deadline(ctx)()
	if _, err := r.conn.Write([]byte{'?'}); err != nil {
		return err
	}
	return r.hear('?')
}

func (r *rawMachine) hear(want byte) error {
	var b [1]byte
	if _, err := io.ReadFull(r.conn, b[:]); err != nil {
		return err
	}
	if b[0] != want {
		return fmt.Errorf("the guest answered %q, not %q", b[0], want)
	}
	return nil
}

func (r *rawMachine) order(kind byte) error {
	_, err := r.conn.Write(binary.LittleEndian.AppendUint64([]byte{kind}, uint64(r.bytes)))
	return err
}

func (r *rawMachine) into(ctx context.Context) (float64, error) {
	defer r.deadline(ctx)()
	start := time.Now()
	if err := r.order('i'); err != nil {
		return nan, err
	}
	if _, err := io.CopyBuffer(r.conn, io.LimitReader(filled{}, r.bytes), make([]byte, 256<<10)); err != nil {
		return nan, err
	}
	err := r.hear('i')
	return rate(r.bytes, start), err
}

func (r *rawMachine) out(ctx context.Context) (float64, error) {
	defer r.deadline(ctx)()
	start := time.Now()
	if err := r.order('o'); err != nil {
		return nan, err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(r.conn, r.bytes), make([]byte, 256<<10))
	return rate(r.bytes, start), err
}

// filled is an endless reader of bytes that nobody looks at.
type filled struct{}

func (filled) Read(p []byte) (int, error) { return len(p), nil }

func rate(n int64, start time.Time) float64 { return float64(n) / 1e6 / time.Since(start).Seconds() }

// controlMover is the guest agent's own measure of its channel.
type controlMover struct {
	client *agent.Client
	bytes  int64
	close  func() error
}

// openControl boots the image and waits until its start has finished.
func openControl(ctx context.Context, b *bench, dir string) (*controlMover, error) {
	m, end, err := openMachine(ctx, b, dir, "control", func(spec *machine.Spec, e *qemu.Engine, img image.Image) error {
		spec.Disk = filepath.Join(spec.Dir, "root.qcow2")
		return e.CreateDisk(ctx, spec.Disk, machine.Base{Path: img.Root}, img.MinDiskMB)
	})
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	conn, err := m.Dial(bounded, machine.PortControl)
	if err != nil {
		return nil, err
	}
	if conn, err = channel.Dial(bounded, conn); err != nil {
		return nil, err
	}
	client, err := agent.NewClient(conn)
	if err != nil {
		return nil, err
	}
	c := &controlMover{client: client, bytes: int64(b.channelMB) << 20}
	c.close = func() error { return errors.Join(client.Close(), end()) }
	spec := holt.RunSpec{Argv: settled, User: "root", Cwd: "/"}
	id := holt.NewRunID()
	if _, err := client.StartRun(bounded, id, spec); err != nil {
		return nil, err
	}
	return c, client.FollowRun(bounded, id, 0, func(holt.RunEvent) error { return nil })
}

func (c *controlMover) into(ctx context.Context) (float64, error) {
	t, err := c.client.Measure(ctx, c.bytes, 0)
	return t.IntoGuest, err
}

func (c *controlMover) out(ctx context.Context) (float64, error) {
	t, err := c.client.Measure(ctx, 0, c.bytes)
	return t.OutOfGuest, err
}

func (c *controlMover) echo(ctx context.Context) error { _, err := c.client.Hello(ctx); return err }

// filesMover moves a file on the guest's tmpfs.
type filesMover struct {
	d    *daemon
	name string
}

const guestFile = "/dev/shm/bench"

func (f *filesMover) size() int64 { return int64(f.d.b.channelMB) << 20 }

func (f *filesMover) into(ctx context.Context) (float64, error) {
	start := time.Now()
	_, err := f.d.client.Files.Write(ctx, f.name, guestFile, holt.WriteSpec{User: "root"}, io.LimitReader(filled{}, f.size()))
	return rate(f.size(), start), err
}

func (f *filesMover) out(ctx context.Context) (float64, error) {
	start := time.Now()
	var n counter
	err := f.d.client.Files.Read(ctx, f.name, guestFile, 0, -1, &n)
	if err == nil && int64(n) != f.size() {
		err = fmt.Errorf("%d bytes came back of %d", n, f.size())
	}
	return rate(f.size(), start), err
}

func (f *filesMover) echo(ctx context.Context) error {
	_, err := f.d.client.Files.Stat(ctx, f.name, "/dev/shm")
	return err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
