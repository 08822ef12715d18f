package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/client"
)

// daemon is a `holt serve` with a data directory of its own.
type daemon struct {
	b      *bench
	data   string
	client *client.Client
	cmd    *exec.Cmd
	exited chan struct{}
	said   bytes.Buffer // read once it has exited
	end    func() error // ends it before the bench does
	path   string       // directory whose programs come before others of their names
	via    []string     // a program that executes it, with arguments
}

// startDaemon starts the program under test, with its image built.
func startDaemon(ctx context.Context, b *bench, data, engine string) (*daemon, error) {
	return startDaemonWith(ctx, b, data, engine, "", nil)
}

// startDaemonWith does so, with a directory whose programs come before others of their names, by way of another program, which executes it,
// and with more flags.
func startDaemonWith(ctx context.Context, b *bench, data, engine, path string, through []string, flags ...string) (*daemon, error) {
	if _, err := os.Stat(b.holt); err != nil {
		return nil, fmt.Errorf("no program to test (make build makes it): %w", err)
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	d := &daemon{b: b, data: data, exited: make(chan struct{}), path: path, via: through}
	b.say("image of %s", b.template)
	if _, err := d.cli(ctx, "image", "build", b.template); err != nil {
		return nil, err
	}
	return d, d.launch(ctx, engine, flags...)
}

// launch starts the program and returns when it answers.
func (d *daemon) launch(ctx context.Context, engine string, more ...string) error {
	command := slices.Concat(d.via, []string{d.b.holt, "serve", "--engine", engine, "--renew-after", "0"}, more)
	d.cmd = exec.Command(command[0], command[1:]...)
	d.cmd.Env = d.env()
	d.cmd.Stdout, d.cmd.Stderr = &d.said, &d.said
	d.cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	go func() { d.cmd.Wait(); close(d.exited) }()
	d.end = d.b.own("the daemon", d.stop)
	c, err := client.New(client.Options{Socket: filepath.Join(d.data, "holt.sock")})
	if err != nil {
		return err
	}
	d.client = c
	return d.await(ctx)
}

func (d *daemon) env() []string {
	env := append(os.Environ(), holt.EnvDataDir+"="+d.data, holt.EnvImageDir+"="+d.b.imageDir,
		holt.EnvSocket+"="+filepath.Join(d.data, "holt.sock"), holt.EnvHost+"=")
	if d.path != "" {
		env = append(env, "PATH="+d.path+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	return env
}

// await returns when the daemon answers.
func (d *daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		h, err := d.client.Daemon.Health(ctx)
		if err == nil {
			d.b.accelerator = h.Engine
			return nil
		}
		select {
		case <-d.exited:
			return fmt.Errorf("the daemon ended: %s", d.said.String())
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// overTCP returns the daemon's token, and a client that calls it with that at a port of the loopback.
func (d *daemon) overTCP(port string) (*client.Client, string, error) {
	secret, err := os.ReadFile(filepath.Join(d.data, "token"))
	if err != nil {
		return nil, "", err
	}
	token := strings.TrimSpace(string(secret))
	c, err := client.New(client.Options{Host: "127.0.0.1:" + port, Token: token})
	return c, token, err
}

// stop ends computers and daemon; what does not end by itself is killed, and
// the machines are left to the sweep.
func (d *daemon) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := d.client.Daemon.Down(ctx, holt.DownSpec{Computers: holt.DownStop}, "")
	d.client.Close()
	select {
	case <-d.exited:
		return err
	case <-ctx.Done():
	}
	err = errors.Join(err, d.cmd.Process.Kill(), errors.New("the daemon did not end by itself"))
	<-d.exited
	return err
}

// cli runs the command line and returns what it printed.
func (d *daemon) cli(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, d.b.holt, args...)
	cmd.Env = d.env()
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("holt %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}

// run runs a program in a computer as root and returns its standard output.
func (d *daemon) run(ctx context.Context, computer string, argv ...string) ([]byte, error) {
	r, err := d.client.Runs.Start(ctx, computer, holt.RunSpec{Argv: argv, User: "root", Cwd: "/"}, "")
	if err != nil {
		return nil, err
	}
	var out, complaint bytes.Buffer
	err = d.client.Runs.Follow(ctx, r.ID, 0, func(e holt.RunEvent) error {
		switch e.Kind {
		case holt.RunStdout:
			out.Write(e.Data)
		case holt.RunStderr:
			complaint.Write(e.Data)
		case holt.RunExit:
			r = *e.Run
		}
		return nil
	})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("%s in the guest: exit status %d: %s", filepath.Base(argv[0]), r.ExitCode, firstLine(complaint.String()))
	}
	return out.Bytes(), err
}

// bring puts the load generator into a computer.
func (d *daemon) bring(ctx context.Context, computer string) error {
	program, err := os.ReadFile(d.b.load)
	if err != nil {
		return err
	}
	_, err = d.client.Files.Write(ctx, computer, guestLoad, holt.WriteSpec{Mode: 0o755, User: "root"}, bytes.NewReader(program))
	return err
}

// settle waits until the guest has finished its start, which goes on long
// after its agent answers.
func (d *daemon) settle(ctx context.Context, computer string) error {
	_, err := d.run(ctx, computer, settled...)
	return err
}

// settled is a program that returns when the guest has finished its start. At
// first there is no bus to ask on, and systemctl would say "offline" at once.
var settled = []string{"sh", "-c", "until [ -S /run/dbus/system_bus_socket ]; do sleep 0.1; done; systemctl is-system-running --wait; true"}
