package mount

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"holt/internal/workspace"
)

// asKeeper makes this program a keeper.
const asKeeper = "keep-mount"

// TestMain also runs this program's helpers: see helper.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asKeeper {
		if err := Keep(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if name := os.Getenv("MOUNT_TEST_HELPER"); name != "" {
		if err := helpers()[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helpers are other main functions of this program.
func helpers() map[string]func(args []string) error {
	return map[string]func([]string) error{
		// mounts a bare file system on args[0] and prints a line, until it is killed
		"bare": func(args []string) error {
			if _, err := Bare(context.Background(), args[0], nil); err != nil {
				return err
			}
			fmt.Println("mounted")
			select {}
		},
		// mounts a bare file system on args[0] until its input ends
		"bare-once": func(args []string) error {
			m, err := Bare(context.Background(), args[0], nil)
			if err != nil {
				return err
			}
			fmt.Println("mounted")
			io.Copy(io.Discard, os.Stdin)
			return m.Unmount()
		},
		// maps args[0], and for each line of its input prints how many KiB of the map
		// are dirty, after writing through the map if the line is "write"
		"map": func(args []string) error { return mapFile(args[0]) },
		// creates and removes files with the longest path, below args[0]
		"long-path": func(args []string) error { return useLongPath(args[0]) },
		// does one operation on a file as a user: see actAs
		"act": act,
		// writes and syncs a map of args[0] as its input says
		"faults": func(args []string) error { return mapFaults(args[0]) },
		// writes args[1] random bytes to the new file args[0] and prints their hash
		"fill": func(args []string) error {
			n, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil {
				return err
			}
			return fillFile(args[0], n)
		},
		// serves the workspace in args[0] to the guest at descriptor 3
		"serve": func(args []string) error {
			conn, ws, err := toServe(args[0])
			if err != nil {
				return err
			}
			if err := Guest(context.Background(), ws, conn, GuestOptions{}); err != nil {
				return err
			}
			return ws.Close()
		},
		// serves the workspace in args[0] on args[1], with a keeper whose socket is in args[2], until its input ends
		"serve-host": func(args []string) error { return serveKept(args[0], args[1], args[2]) },
		// serves likewise, and after a line of input restores the checkpoint "then",
		// prints a line, and notifies no kernel
		"serve-restore": func(args []string) error {
			conn, ws, err := toServe(args[0])
			if err != nil {
				return err
			}
			go Guest(context.Background(), ws, conn, GuestOptions{})
			var line string
			fmt.Scanln(&line)
			if _, err := ws.Restore(context.Background(), workspace.Caller{}, "then", workspace.RestoreOptions{}); err != nil {
				return err
			}
			fmt.Println("restored")
			select {}
		},
	}
}

// toServe opens the guest at descriptor 3 and its workspace.
func toServe(dir string) (net.Conn, *workspace.Workspace, error) {
	conn, err := net.FileConn(os.NewFile(3, "guest"))
	if err != nil {
		return nil, nil, err
	}
	ws, err := workspace.Open(dir, workspace.Options{})
	return conn, ws, err
}

// helper returns a command that runs a helper.
func helper(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "MOUNT_TEST_HELPER="+name)
	cmd.Stderr = t.Output()
	return cmd
}

// testLog sends log lines to the test's output.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

// sh runs a shell script in dir and returns its output. The shell changes its
// directory itself: starting a child in this process's own mount would block a
// processor of the runtime until the mount has answered.
func sh(t testing.TB, dir, script string) string {
	t.Helper()
	out, err := exec.Command("bash", "-euo", "pipefail", "-c", "cd "+dir+"; "+script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// needRoot fails a test that needs root to mount.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts by itself: run it as root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatalf("%v: modprobe fuse", err)
	}
}
