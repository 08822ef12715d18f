package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	standing    = "/run/holt/guest" // where this program runs from in a sandbox
	hostDir     = "/run/holt-boot"  // where the host has it
	lineIn      = 3                 // what the host sends
	lineOut     = 4                 // what the host receives
	powerSignal = unix.Signal(34 + 4)
)

// asSandbox is PID 1 of a sandbox. Its disk is a file.
func asSandbox() error {
	if os.Args[0] != standing {
		if err := leaveHost(); err != nil {
			return fmt.Errorf("leave %s: %w", hostDir, err)
		}
	}
	pressed := make(chan os.Signal, 1)
	signal.Notify(pressed, powerSignal)
	diskPath = "/disk"
	f, err := os.OpenFile(diskPath, os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	go echo(lineIn, lineOut) // whoever hears an echo may press the button
	fmt.Println("guest: ready: arguments", os.Args[1:])
	go count()
	<-pressed
	fmt.Println("guest: power button")
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// leaveHost executes a copy of this program, so that a restored machine does not
// look for files in the host's directory. It returns only if that fails.
func leaveHost() error {
	if err := os.Mkdir(filepath.Dir(standing), 0o755); err != nil {
		return err
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	to, err := os.OpenFile(standing, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		return err
	}
	if err := unix.Unmount(hostDir, unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Exec(standing, append([]string{standing}, os.Args[1:]...), os.Environ())
}

func room() (string, error) {
	var st unix.Statfs_t
	err := unix.Statfs(diskPath, &st)
	return fmt.Sprint(int64(st.Blocks) * st.Bsize >> 20), err
}

// end ends the machine in a way other than by its power button.
func end(how string) error {
	switch how {
	case "off":
		return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case "reboot":
		return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case "exit":
		os.Exit(0)
	}
	return errors.New("nobody knows how to end by " + how)
}
