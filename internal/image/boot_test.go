package image_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/engine/machine/machinetest"
	"holt/internal/engine/qemu"
	"holt/internal/guest/agent"
	"holt/internal/guest/channel"
	"holt/internal/image"
)

// bootLimit bounds one boot and the commands after it. Under software emulation
// on a busy host that takes a minute.
const bootLimit = 8 * time.Minute

// run runs a shell command as root in the guest and returns what it printed.
func run(ctx context.Context, t *testing.T, c *agent.Client, command string) string {
	t.Helper()
	id := holt.NewRunID()
	if _, err := c.StartRun(ctx, id, holt.RunSpec{Command: holt.OSString(command), User: "root", Cwd: "/"}); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	var out strings.Builder
	err := c.FollowRun(ctx, id, 0, func(e holt.RunEvent) error {
		out.Write(e.Data)
		if e.Kind == holt.RunExit && e.Run.ExitCode != 0 {
			t.Errorf("%s: exit status %d", command, e.Run.ExitCode)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimSpace(out.String())
}

// boot boots an image on a machine with a larger disk, and returns a client of its agent.
func boot(ctx context.Context, t *testing.T, engine machine.Engine, im image.Image) (*agent.Client, machine.Machine) {
	t.Helper()
	work := t.TempDir()
	disk := filepath.Join(work, "root")
	if err := engine.CreateDisk(ctx, disk, machine.Base{Path: im.Root}, 10240); err != nil {
		t.Fatal(err)
	}
	m, err := engine.Start(ctx, machine.Spec{
		ID: "image-test", Dir: work, Kernel: im.Kernel, Initrd: im.Initrd, Args: im.Args,
		Disk: disk, CPUs: 1, MemoryMB: 1024, Network: true, Unserved: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if console, err := os.ReadFile(m.Console()); t.Failed() && err == nil {
			t.Logf("console:\n%s", console)
		}
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	raw, err := m.Dial(ctx, machine.PortControl)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := channel.Dial(ctx, raw)
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.NewClient(conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Hello(ctx); err != nil {
		t.Fatal(err)
	}
	return c, m
}

// up waits until systemd has started all units. It retries, since the agent starts before
// systemd.
const up = "until test -S /run/systemd/private; do sleep 0.2; done; systemctl is-system-running --wait; systemctl --failed --no-legend"

// TestBoot boots the image base and checks its content.
func TestBoot(t *testing.T) {
	t.Parallel() // network and disk are the bottleneck
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	engine, err := qemu.Open(ctx, qemu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, m := boot(ctx, t, engine, machinetest.Base(t, machinetest.Agent(t)))
	if got := run(ctx, t, c, up); got != "running" {
		t.Errorf("the system is %s", got)
	}
	lookAround(ctx, t, c)
	if err := c.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	select {
	case <-m.Done():
	case <-ctx.Done():
		t.Error("the machine does not shut down")
	}
}

// lookAround runs commands as root and by sudo: this machine has no workspace, and a
// login of agent would wait for it.
func lookAround(ctx context.Context, t *testing.T, c *agent.Client) {
	t.Helper()
	for command, want := range map[string]string{
		"df --output=size -h / | tail -n 1 | tr -d ' '":                                                "10G",
		"sudo -n -u agent sudo -n id -un; id -u agent; echo $LANG":                                     "root\n1000\nC.UTF-8",
		"python3 -c 'print(6*7)'; git --version | cut -c1-11":                                          "42\ngit version",
		"modinfo -F name overlay && sudo modprobe overlay && echo loaded":                              "overlay\nloaded",
		"grep -ow net.ifnames=0 /proc/cmdline":                                                         "net.ifnames=0",
		"test -s /etc/machine-id && echo yes":                                                          "yes",
		"cat /etc/resolv.conf | grep -c nameserver":                                                    "1",
		"ip -o -4 addr show eth0 | grep -c 10.0.2.15/24":                                               "1",
		"test -c /dev/fuse && test -c /dev/net/tun && echo yes":                                        "yes",
		"journalctl --no-pager -q -n 1 | wc -l":                                                        "1",
		"cd /proc/sys; cat fs/inotify/max_user_watches fs/inotify/max_user_instances vm/max_map_count": "1048576\n8192\n1048576",
		"cd /proc/sys; cat kernel/pid_max kernel/perf_event_paranoid net/core/somaxconn":               "4194304\n1\n4096",
		"ulimit -Sn; ulimit -Hn; ulimit -l; ulimit -u":                                                 "1048576\n1048576\nunlimited\nunlimited",
		"sudo -n -u agent sudo -n bash -c 'ulimit -Sn; ulimit -Hn; ulimit -l; ulimit -u'":              "1048576\n1048576\nunlimited\nunlimited",
		"systemd-run -q --wait --pipe bash -c 'ulimit -Sn; ulimit -Hn; ulimit -l; ulimit -u'":          "1048576\n1048576\nunlimited\nunlimited",
	} {
		if got := run(ctx, t, c, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
