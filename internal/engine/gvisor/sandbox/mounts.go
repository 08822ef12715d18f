package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/gvisor"
)

// top is where the keeper mounts everything, in its own mount namespace. The
// directory itself is on the host, since all data may be below another one.
const top = "/run/holt-sandbox"

// Directories below top.
const (
	lowerDir     = top + "/lower"
	diskDir      = top + "/disk"
	rootDir      = top + "/root"
	workspaceDir = top + "/workspace"
	bundleDir    = top + "/bundle"
	guestDir     = top + "/guest"
	imageDir     = top + "/image"
)

const (
	loopWait   = 10 * time.Second // for the kernel to release a disk that was used a moment ago
	superBlock = 1024             // offset of it in an ext4 image
	unusable   = 4 << 20          // resize2fs leaves less unused at the end: too little for a block group, bytes
)

// enter makes the mounts of this namespace slaves of the host's, and mounts what
// does not depend on the machine. File systems that the host mounts later are
// visible here, where an image may be written to one; those that it unmounts are
// unmounted here too, so that they are not kept in use.
func enter() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("separate the mounts from the host's: %w", err)
	}
	if err := os.MkdirAll(top, 0o700); err != nil {
		return err
	}
	if err := mount("tmpfs", top, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=700"); err != nil {
		return err
	}
	for _, dir := range []string{lowerDir, diskDir, rootDir, workspaceDir, bundleDir, guestDir, imageDir} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

func mount(source, target, kind string, flags uintptr, options string) error {
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// mountRoot mounts the root disk at rootDir.
func mountRoot(disk string) error {
	h, err := gvisor.ReadDiskHeader(disk)
	if err != nil {
		return err
	}
	const flags = unix.MS_NOATIME | unix.MS_NOSUID | unix.MS_NODEV
	lower, err := attach(h.Root, true)
	if err != nil {
		return fmt.Errorf("attach image %s: %w", h.Root, err)
	}
	defer lower.Close()
	if err := mount(lower.Name(), lowerDir, "ext4", flags|unix.MS_RDONLY, "noload"); err != nil {
		return err
	}
	f, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer f.Close()
	upper, err := attach(disk, false)
	if err != nil {
		return fmt.Errorf("attach disk %s: %w", disk, err)
	}
	defer upper.Close()
	if err := grow(f, upper.Name()); err != nil {
		return err
	}
	if err := mount(upper.Name(), diskDir, "ext4", flags, "discard,noinit_itable"); err != nil {
		return err
	}
	for _, dir := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(diskDir, dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return mount("overlay", rootDir, "overlay", flags, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lowerDir, diskDir, diskDir))
}

// grow grows the file system of a disk, which is not mounted, to the disk's size. (The kernel's own call for mounted ones
// needs CAP_SYS_RESOURCE, which a daemon in a container may lack.)
func grow(disk *os.File, device string) error {
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	var super [128]byte // of fs/ext4/ext4.h: s_blocks_count_lo at 4, s_log_block_size at 24
	if _, err := disk.ReadAt(super[:], gvisor.HeaderBytes+superBlock); err != nil {
		return err
	}
	blocks, size := int64(binary.LittleEndian.Uint32(super[4:])), int64(1024)<<min(binary.LittleEndian.Uint32(super[24:]), 6)
	if info.Size()-gvisor.HeaderBytes-blocks*size < unusable {
		return nil
	}
	for _, c := range [][]string{{"e2fsck", "-fp", device}, {"resize2fs", "-f", device}} {
		out, err := exec.Command(c[0], c[1:]...).CombinedOutput()
		var failed *exec.ExitError
		if errors.As(err, &failed) && c[0] == "e2fsck" && failed.ExitCode() == 1 {
			err = nil // it has corrected something
		}
		if err != nil {
			return fmt.Errorf("grow the file system of %s: %s: %w: %s", disk.Name(), c[0], err, holt.Clip(string(out), 500))
		}
	}
	return nil
}

// attach returns an open loop device of an image, or of the file system in a disk.
// It is released with its last user. A read-only file shares one device with all machines, and so the kernel's
// cache. A disk that another device still has was just used by a machine that
// ended; attach waits for the kernel to release it.
func attach(path string, readOnly bool) (*os.File, error) {
	mode, info := os.O_RDWR, unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR, Offset: gvisor.HeaderBytes}
	if readOnly {
		mode, info = os.O_RDONLY, unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_READ_ONLY}
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for end := time.Now().Add(loopWait); ; time.Sleep(10 * time.Millisecond) {
		device, err := attached(f, mode, info)
		switch {
		case err != nil:
			return nil, err
		case device != nil && readOnly:
			return device, nil
		case device != nil:
			device.Close()
			if time.Now().After(end) {
				return nil, fmt.Errorf("%s is in use by %s", path, device.Name())
			}
			continue
		}
		device, err = attachNew(f, mode, info)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) { // another process took the device
			return device, err
		}
	}
}

// attached returns the loop device that has the file in the same way, nil if none has.
func attached(f *os.File, mode int, want unix.LoopInfo64) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, path := range used {
		device, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(filepath.Dir(path))), mode, 0)
		if err != nil {
			continue // it was released
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino && info.Offset == want.Offset && (info.Flags^want.Flags)&unix.LO_FLAGS_READ_ONLY == 0 {
			return device, nil
		}
		device.Close()
	}
	return nil, nil
}

// attachNew attaches a file to a free loop device. The error is EBUSY if another process was quicker.
func attachNew(f *os.File, mode int, info unix.LoopInfo64) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, fmt.Errorf("find a free loop device: %w", err)
	}
	device, err := os.OpenFile(fmt.Sprint("/dev/loop", n), mode, 0)
	if err != nil {
		return nil, err
	}
	conf := unix.LoopConfig{Fd: uint32(f.Fd()), Info: info}
	if err := unix.IoctlLoopConfigure(int(device.Fd()), &conf); err != nil {
		device.Close()
		return nil, err
	}
	return device, nil
}

// unmountRoot writes the root disk back and releases it.
func unmountRoot() error {
	return errors.Join(unix.Unmount(rootDir, 0), unix.Unmount(diskDir, 0), unix.Unmount(lowerDir, 0))
}

// syncAt writes back what the file system at dir has in memory.
func syncAt(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
