package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/loopback"
)

// socketName is the daemon's socket in its data directory.
const socketName = "holt.sock"

// maxSocketPath is the maximum length of a socket's path (unix(7)), without its
// terminating NUL.
const maxSocketPath = 107

// socket checks the path of the daemon's socket, and whether a daemon answers
// there.
func (h host) socket(ctx context.Context, opt Options) holt.Finding {
	if opt.DataDir == "" {
		return ok("not checked: no data directory given")
	}
	name := filepath.Join(opt.DataDir, socketName)
	if len(name) > maxSocketPath {
		return bad(fmt.Sprintf("the socket's path %s has %d bytes: the maximum is %d", name, len(name), maxSocketPath),
			"set "+holt.EnvDataDir+" to a data directory with a shorter path")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", name)
	switch {
	case err == nil:
		conn.Close()
		return ok("a daemon answers at " + name)
	case errors.Is(err, os.ErrNotExist):
		return ok("free: " + name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return ok("free: " + name + ", left by a killed daemon; the next daemon replaces it")
	}
	return bad("cannot connect to "+name+": "+err.Error(), "check the owner and mode of the data directory")
}

// port checks whether the daemon's TCP address is free.
func (h host) port(_ context.Context, opt Options) holt.Finding {
	tcp, err := loopback.Listen(opt.Listen)
	switch {
	case err == nil:
		tcp.Close()
		return ok("free: " + opt.Listen)
	case errors.Is(err, syscall.EADDRINUSE):
		return bad(opt.Listen+" is taken by another program", "choose another port with --listen, or find the program: ss -ltnp")
	}
	return bad("cannot listen on "+opt.Listen+": "+err.Error(), "give an address of this machine and a port, such as localhost:4646")
}

func (h host) machines(_ context.Context, opt Options) holt.Finding {
	if opt.Strays == nil || opt.DataDir == "" {
		return ok("not checked")
	}
	strays, err := opt.Strays(opt.DataDir)
	if err != nil {
		return warn("find stray machines: "+err.Error(), "")
	}
	if len(strays) == 0 {
		return ok("no stray machines")
	}
	var pids []string
	for _, s := range strays {
		pids = append(pids, fmt.Sprint(s.PID))
	}
	return warn(fmt.Sprintf("%d without a computer (process %s)", len(strays), strings.Join(pids, ", ")),
		"end them: kill "+strings.Join(pids, " "))
}

// mounts finds dead mounts of workspaces: without a server, programs that use
// them get errors or hang.
func (h host) mounts(ctx context.Context, opt Options) holt.Finding {
	data, err := os.ReadFile(h.path("proc/self/mountinfo"))
	if err != nil {
		return warn("read mounts: "+err.Error(), "")
	}
	ours := holtMounts(string(data))
	var dead, again []string
	for _, dir := range ours {
		switch {
		case alive(ctx, dir):
		case slices.Contains(opt.Mounts, dir):
			again = append(again, dir)
		default:
			dead = append(dead, dir)
		}
	}
	if len(dead) > 0 {
		return warn(fmt.Sprintf("%d dead: %s", len(dead), strings.Join(dead, ", ")), "umount -l "+strings.Join(dead, " "))
	}
	if len(again) > 0 {
		return ok(fmt.Sprintf("%d without a daemon, which serves them again when it runs: %s", len(again), strings.Join(again, ", ")))
	}
	return ok(holt.CountOf(len(ours), "workspace") + " mounted, none dead")
}

// holtMounts returns the mount points of holt's FUSE file systems in the text
// of /proc/self/mountinfo (proc(5)).
func holtMounts(info string) []string {
	var out []string
	for line := range strings.Lines(info) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 2 {
			continue
		}
		if strings.HasPrefix(g[0], "fuse") && (strings.Contains(g[0], "holt") || strings.HasPrefix(g[1], "holt")) {
			out = append(out, unescape(f[4]))
		}
	}
	return out
}

// unescape undoes the octal escapes of blanks and backslashes in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountWait is how long a live mount may take to answer statfs.
const mountWait = 2 * time.Second

func alive(ctx context.Context, dir string) bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(dir, &st) // may never return
	}()
	late := time.NewTimer(mountWait)
	defer late.Stop()
	select {
	case err := <-answer:
		return err == nil
	case <-late.C:
		return false
	case <-ctx.Done():
		return true // not known to be dead
	}
}
