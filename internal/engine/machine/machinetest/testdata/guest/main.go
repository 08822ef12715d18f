// Guest stands in for the guest agent in tests of engines: it echoes on both
// ports. As PID 1 of a virtual machine it loads the modules under /m first and
// uses virtio ports; as "guest agent --control-socket P --files-socket P" it uses unix
// sockets; as "holt-guest sandbox", PID 1 of a sandbox, it uses descriptors, for the
// control port only. It ends when the power button is pressed or SIGTERM comes.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "agent":
		err = asProcess(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "sandbox":
		err = asSandbox()
	default:
		err = asInit()
	}
	fmt.Println("guest: ends:", err)
	if err != nil {
		os.Exit(1)
	}
}

func asProcess(args []string) error {
	flags := flag.NewFlagSet("agent", flag.ExitOnError)
	control := flags.String("control-socket", "", "")
	files := flags.String("files-socket", "", "")
	cgroup := flags.String("cgroup", "", "")
	flags.Parse(args)
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	// A child that ignores every signal must end with its machine.
	child := exec.Command("sh", "-c", "trap '' TERM HUP INT; sleep 100000 & wait")
	child.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return err
	}
	for _, path := range []string{*control, *files} {
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				io.Copy(conn, conn) // one at a time, as a virtio port does
				conn.Close()
			}
		}()
	}
	fmt.Println("guest: ready: pid", os.Getpid(), "mounts", mounted(), "cgroup", *cgroup)
	<-term
	return nil
}

// mounted returns the file system on /home, which an engine guarantees.
func mounted() string {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "/home" {
			return f[2]
		}
	}
	return "nothing"
}

func asInit() error {
	for _, m := range [][2]string{{"proc", "proc"}, {"sys", "sysfs"}, {"dev", "devtmpfs"}} {
		if err := unix.Mount(m[0], "/"+m[0], m[1], 0, ""); err != nil {
			return err
		}
	}
	modules, err := filepath.Glob("/m/*.ko") // numbered in load order
	if err != nil {
		return err
	}
	for _, m := range modules {
		f, err := os.Open(m)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("load %s: %w", m, err)
		}
		f.Close()
	}
	pressed, err := powerButton()
	if err != nil {
		return err
	}
	for _, name := range []string{"control", "files"} { // whoever hears an echo may press the button
		fd, err := openPort(name)
		if err != nil {
			return err
		}
		go echo(fd, fd)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	fmt.Printf("guest: ready: %s", line)
	go reportDisk()
	go count()
	if bytes.Contains(line, []byte("test.flood")) {
		go flood()
	}
	if bytes.Contains(line, []byte("test.write")) {
		go func() { fmt.Println("guest: wrote all:", writeDisk(32)) }()
	}
	if err := <-pressed; err != nil {
		return err
	}
	fmt.Println("guest: power button")
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// flood writes to the console without end.
func flood() {
	line := bytes.Repeat([]byte("flood "), 100)
	for {
		os.Stdout.Write(append(line, '\n'))
	}
}

// reportDisk prints the disk's size once the kernel has found it, if there is one.
func reportDisk() {
	for {
		if sectors, err := os.ReadFile("/sys/block/vda/size"); err == nil {
			fmt.Printf("guest: vda has sectors: %s", sectors)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// writeDisk writes mb MiB of non-zero bytes to the disk, bypassing caches.
func writeDisk(mb int) error {
	f, err := os.OpenFile("/dev/vda", os.O_WRONLY|unix.O_DSYNC, 0)
	for errors.Is(err, fs.ErrNotExist) { // the kernel is still looking
		time.Sleep(5 * time.Millisecond)
		f, err = os.OpenFile("/dev/vda", os.O_WRONLY|unix.O_DSYNC, 0)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	block := bytes.Repeat([]byte("holt"), 1<<18)
	for range mb {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return nil
}

func openPort(name string) (int, error) {
	ports, err := filepath.Glob("/sys/class/virtio-ports/*")
	if err != nil {
		return 0, err
	}
	for _, p := range ports {
		b, err := os.ReadFile(p + "/name")
		if err == nil && strings.TrimSpace(string(b)) == name {
			return unix.Open("/dev/"+filepath.Base(p), unix.O_RDWR|unix.O_NONBLOCK, 0)
		}
	}
	return 0, fmt.Errorf("no port %s among %v", name, ports)
}

// echo echoes the lines that it reads from in to out, and answers requests, which
// begin with an exclamation mark. While the host is not connected a read returns 0 bytes at once and a
// write EAGAIN.
func echo(in, out int) {
	buf := make([]byte, 32<<10)
	var line []byte
	for {
		n, err := unix.Read(in, buf)
		if n <= 0 {
			if err != nil && err != unix.EAGAIN {
				fmt.Println("guest: read port:", err)
			}
			time.Sleep(2 * time.Millisecond)
			continue
		}
		line = append(line, buf[:n]...)
		for {
			whole, rest, ok := bytes.Cut(line, []byte("\n"))
			if !ok {
				break
			}
			if request, is := bytes.CutPrefix(whole, []byte("!")); is {
				whole = []byte(answer(strings.Fields(string(request))))
			}
			send(out, append(bytes.Clone(whole), '\n'))
			line = rest
		}
	}
}

// send writes all of p. The kernel may learn of the host's connection only
// after its first bytes, so send retries while it is not connected.
func send(fd int, p []byte) {
	for len(p) > 0 {
		w, err := unix.Write(fd, p)
		if err == unix.EAGAIN {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if err != nil {
			return
		}
		p = p[w:]
	}
}

// powerButton returns a channel that receives when the button is pressed.
func powerButton() (<-chan error, error) {
	const (
		size     = 24 // struct input_event
		evKey    = 1
		keyPower = 116
	)
	events, err := filepath.Glob("/dev/input/event*")
	if err != nil {
		return nil, err
	}
	pressed := make(chan error, len(events))
	for _, e := range events {
		f, err := os.Open(e)
		if err != nil {
			return nil, err
		}
		go func() {
			b := make([]byte, size)
			for {
				if _, err := io.ReadFull(f, b); err != nil {
					pressed <- err
					return
				}
				if binary.LittleEndian.Uint16(b[16:]) == evKey && binary.LittleEndian.Uint16(b[18:]) == keyPower {
					pressed <- nil
					return
				}
			}
		}()
	}
	return pressed, nil
}
