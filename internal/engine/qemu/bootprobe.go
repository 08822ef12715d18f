package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

const (
	// bootDeadline is the timeout of the test boot. It takes about 0.1 s with a working KVM, and several seconds if
	// this host is itself a slow virtual machine.
	bootDeadline = 20 * time.Second

	debugExitPort  = 0xf4
	debugExitValue = 0x2a
	// debugExitStatus is QEMU's exit status when a guest writes the value to the
	// port of its isa-debug-exit device: (value << 1) | 1.
	debugExitStatus = debugExitValue<<1 | 1
)

// bootSector returns a disk whose first sector writes one byte to the
// debug-exit port, which ends QEMU. The firmware loads it and jumps to it in
// 16-bit real mode.
func bootSector() []byte {
	sector := make([]byte, 512)
	copy(sector, []byte{
		0xba, debugExitPort, 0x00, // mov dx, port
		0xb0, debugExitValue, // mov al, value
		0xee,       // out dx, al
		0xfa,       // cli
		0xf4,       // hlt
		0xeb, 0xfd, // jmp to hlt
	})
	sector[510], sector[511] = 0x55, 0xaa // the signature of a bootable disk
	return sector
}

// bootProbe boots the sector, and returns why that failed. It returns within a
// second of the deadline: it abandons a process that hangs in the kernel and
// cannot be killed.
func bootProbe(ctx context.Context, binary string, accel machine.Acceleration) error {
	dir, err := os.MkdirTemp("", "holt-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	disk := filepath.Join(dir, "boot.img")
	if err := os.WriteFile(disk, bootSector(), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootDeadline)
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, binary,
		"-machine", "pc,accel="+string(accel), "-m", "16", "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot",
		"-device", fmt.Sprintf("isa-debug-exit,iobase=%#x,iosize=1", debugExitPort),
		"-drive", "if=ide,format=raw,file="+disk)
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second / 2
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	// The buffer is read only after Wait has returned, when nothing writes to it.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(time.Second):
			return fmt.Errorf("it hangs and cannot be killed")
		}
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == debugExitStatus:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("it was not done within %v", bootDeadline)
	}
	return fmt.Errorf("QEMU ended unexpectedly (%v): %s", err, strings.TrimSpace(said.String()))
}
