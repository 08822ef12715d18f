package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// shape says what machine the figures are of: nothing that names it.
func shape(ctx context.Context, dir, accelerator string) [][2]string {
	out := [][2]string{
		{"processor", fmt.Sprintf("%d × %s", runtime.NumCPU(), processor())},
		{"memory", memory()},
		{"kernel", kernel()},
		{"file system below", fileSystem(dir)},
		{"Go", runtime.Version()},
		{"QEMU", version(ctx, "qemu-system-x86_64", "--version")},
		{"accelerator", accelerator},
		{"Git", version(ctx, "git", "--version")},
	}
	for _, p := range [][2]string{{"rclone", "version"}, {"s3fs", "--version"}} {
		if path, err := exec.LookPath(p[0]); err == nil {
			out = append(out, [2]string{p[0], version(ctx, path, p[1])})
		}
	}
	return out
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", float64(si.Totalram)*float64(si.Unit)/(1<<30))
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-") // what follows may name the host
	return unix.ByteSliceToString(u.Sysname[:]) + " " + release
}

// fileSystem names the kind of file system that dir lies on.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "disk"
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("type %#x", st.Type)
}

// version returns the first line that a program says about itself.
func version(ctx context.Context, name string, args ...string) string {
	out, err := command(ctx, name, args...)
	if err != nil {
		return "not installed"
	}
	return firstLine(string(out))
}
