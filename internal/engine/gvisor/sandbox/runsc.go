package sandbox

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"holt/internal/engine/gvisor"
)

// Dispatch must be the first call of a program that starts sandboxes. gVisor and
// the engine execute the program again, with another argv[0]: then Dispatch does
// what that says and does not return. Otherwise it sees to it that children inherit
// no descriptors but those they are given: gVisor opens a pipe as it is loaded, and
// mmdebstrap's shell fails if its own descriptors are above 9.
func Dispatch() {
	name := os.Args[0]
	switch {
	case name == gvisor.KeeperName:
		os.Exit(keeperMain())
	case strings.HasPrefix(filepath.Base(name), "runsc"), isUmount(os.Args):
		runsc()
	}
	unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // fails before Linux 5.11: then they inherit them
}

// isUmount recognises the sentry's helper that unmounts /proc. Processes of our
// own have the same argv[0].
func isUmount(args []string) bool {
	return len(args) > 2 && args[0] == "/proc/self/exe" && args[1] == "umount" && strings.HasPrefix(args[2], "--sync-fd=")
}

// runsc is the part of gVisor's command runsc that it executes itself.
func runsc() {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "start a sandbox:", err)
		os.Exit(1)
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(sentrycmd.Boot): "", new(cmd.Gofer): "", new(sentrycmd.Umount): "",
	}, nil)
}

// tagsEnv is the descriptor of the keeper's socket in a sentry that has executed
// itself again: in its new root it finds no bundle. Otherwise the environment of
// a sentry is empty.
const tagsEnv = "HOLT_TAGS_FD"

// prepare makes a sentry ours: the hooks and the flags. It does nothing for other commands.
func prepare() error {
	at := slices.IndexFunc(os.Args[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if at < 0 || os.Args[1+at] != "boot" {
		return nil
	}
	if fd, err := strconv.Atoi(os.Getenv(tagsEnv)); err == nil {
		hook(fd)
		return nil
	}
	bundle := ""
	for _, arg := range os.Args {
		if dir, ok := strings.CutPrefix(arg, "--bundle="); ok {
			bundle = dir
		}
	}
	flags, err := bootFlags(bundle)
	if err != nil {
		return err
	}
	// The last argument is the container's id. Of a repeated flag the last one counts.
	os.Args = slices.Insert(os.Args, len(os.Args)-1, flags...)
	fd, err := dialTags(filepath.Join(bundle, tagsName))
	if err != nil {
		return err
	}
	if err := os.Setenv(tagsEnv, strconv.Itoa(fd)); err != nil {
		return err
	}
	hook(fd)
	return nil
}

// bootFlags returns the flags of boot for the annotations of a bundle. By itself
// gVisor shows the guest the memory and processors of the host.
func bootFlags(bundle string) (flags []string, err error) {
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	var config struct{ Annotations map[string]string }
	if err := json.Unmarshal(b, &config); err != nil {
		return nil, fmt.Errorf("parse bundle: %w", err)
	}
	for annotation, flag := range map[string]string{annotationRAM: "--total-memory", annotationCPU: "--cpu-num"} {
		value, ok := config.Annotations[annotation]
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(value, 10, 63); err != nil || n == 0 {
			return nil, fmt.Errorf("invalid annotation %s: %q", annotation, value)
		}
		flags = append(flags, flag+"="+value)
	}
	return flags, nil
}

// dialTags connects to the keeper's socket. The descriptor is inherited by a
// program that this process executes.
func dialTags(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, fmt.Errorf("make a socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("connect to the keeper at %s: %w", path, err)
	}
	return fd, nil
}
