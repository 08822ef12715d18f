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

// maxSocketPath is what fits into a socket address (unix(7)), without its
// terminating NUL.
const maxSocketPath = 107

// socket looks at the way into the daemon: whether its path can be used, and
// whether somebody already answers there.
func (h host) socket(ctx context.Context, opt Options) holt.Finding {
	if opt.DataDir == "" {
		return ok("no data directory was named")
	}
	name := filepath.Join(opt.DataDir, socketName)
	if len(name) > maxSocketPath {
		return bad(fmt.Sprintf("the socket's path %s has %d bytes; %d fit", name, len(name), maxSocketPath),
			"name a data directory with a shorter path with "+holt.EnvDataDir)
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
		return ok("free: " + name + ", which a daemon that was killed left behind; the next one takes it over")
	}
	return bad("cannot connect to "+name+": "+err.Error(), "see who owns the data directory")
}

// port looks whether the address that a daemon is told to listen on is free.
func (h host) port(_ context.Context, opt Options) holt.Finding {
	tcp, err := loopback.Listen(opt.Listen)
	switch {
	case err == nil:
		tcp.Close()
		return ok("free: " + opt.Listen)
	case errors.Is(err, syscall.EADDRINUSE):
		return bad(opt.Listen+" is taken by another program", "choose another port with --listen, or see who has it: ss -ltnp")
	}
	return bad("cannot listen on "+opt.Listen+": "+err.Error(), "name an address of this machine and a port, as localhost:4646")
}

func (h host) machines(_ context.Context, opt Options) holt.Finding {
	if opt.Strays == nil || opt.DataDir == "" {
		return ok("not looked for")
	}
	strays, err := opt.Strays(opt.DataDir)
	if err != nil {
		return warn("look for leftover machines: "+err.Error(), "")
	}
	if len(strays) == 0 {
		return ok("none left over")
	}
	var pids []string
	for _, s := range strays {
		pids = append(pids, fmt.Sprint(s.PID))
	}
	return warn(fmt.Sprintf("%d that no computer owns (process %s)", len(strays), strings.Join(pids, ", ")),
		"end them: kill "+strings.Join(pids, " "))
}

// mounts looks for mounts of workspaces that nobody serves any more: what
// touches one gets an error, or waits for ever.
func (h host) mounts(ctx context.Context, opt Options) holt.Finding {
	data, err := os.ReadFile(h.path("proc/self/mountinfo"))
	if err != nil {
		return warn("look at mounts: "+err.Error(), "")
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
		return ok(fmt.Sprintf("%d wait until the daemon runs, which serves them again: %s", len(again), strings.Join(again, ", ")))
	}
	return ok(holt.CountOf(len(ours), "workspace") + " mounted, none dead")
}

// holtMounts returns the mount points of FUSE file systems that are holt's,
// from the text of /proc/self/mountinfo (proc(5)).
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

// mountWait is how long a live mount may take to answer for its root.
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
