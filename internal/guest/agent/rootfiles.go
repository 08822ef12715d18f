package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

// Limits of the list of root disk files. An inventory is taken before each
// snapshot, so it must be fast.
const (
	mostLooked  = holt.MostListed // entries of directories
	mostInDir   = 4096            // of one
	mostNames   = 2 << 20         // bytes of paths and targets
	maxRootPath = 1024            // bytes of one
	maxMounts   = 16 << 20        // bytes of mountinfo
	rootLimit   = time.Second     // time limit
)

// systemDirs are top-level directories that are omitted: files of packages,
// virtual file systems, and state of running programs.
var systemDirs = []string{"bin", "boot", "dev", "lib", "lib32", "lib64", "libx32", "lost+found", "proc", "run", "sbin", "sys", "tmp", "usr", "var"}

// localDirs are directories in them with files of users.
var localDirs = []string{"/usr/local", "/var/spool/cron", "/var/www"}

// leftOut reports whether a file is omitted: it differs between all computers
// (see renew and setNames), or is generated from listed files.
func leftOut(p string) bool {
	dir, name := path.Split(p)
	switch dir {
	case "/":
		return slices.Contains(systemDirs, name)
	case "/etc/":
		return name == "hostname" || name == "hosts" || name == "machine-id" || name == "ld.so.cache"
	case "/etc/ssh/":
		return strings.HasPrefix(name, "ssh_host_") && strings.Contains(name, "_key")
	}
	return name == ".cache" || name == "__pycache__"
}

// rootFile is the encoding of a file of the root disk, compact because there are thousands.
type rootFile struct {
	Path   holt.OSString `json:"path"`
	Mode   uint32        `json:"mode"` // st_mode, see inode(7)
	Size   int64         `json:"size"`
	UID    uint32        `json:"uid"`
	GID    uint32        `json:"gid"`
	MTime  int64         `json:"mtime"` // ns
	Target holt.OSString `json:"target,omitempty"`
	Unread bool          `json:"unread,omitempty"` // a directory that was not read completely
}

// rootFiles lists the files below top. Only one listing runs at a time. mounts
// are the known mount points. A directory may be mounted over during the
// listing and hang: then rootFiles returns an error, and until the listing ends
// there is no other.
func (s *Server) rootFiles(ctx context.Context, top string, mounts map[string]bool) ([]rootFile, error) {
	late := time.NewTimer(rootLimit)
	defer late.Stop()
	select {
	case s.looking <- struct{}{}:
	case <-late.C:
		return nil, holt.Errorf(holt.Unavailable, "the files of the root disk are being listed already")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type outcome struct {
		files []rootFile
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-s.looking }()
		w := &rootWalk{mounts: mounts, end: time.Now().Add(rootLimit)}
		err := w.all(top)
		done <- outcome{w.files, err}
	}()
	late.Reset(rootLimit * 3 / 2)
	select {
	case o := <-done:
		return o.files, o.err
	case <-late.C:
		return nil, holt.Errorf(holt.Unavailable, "a directory of the root disk does not respond")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// mountPoints returns all mount points (proc_pid_mountinfo(5)). It does not
// access the mounts, which may hang.
func mountPoints() (map[string]bool, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := io.ReadAll(io.LimitReader(f, maxMounts))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return parseMounts(string(info)), nil
}

func parseMounts(info string) map[string]bool {
	all := map[string]bool{}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(info) {
		// 36 35 98:0 /root /point options - type source options
		if f := strings.Fields(line); len(f) > 4 {
			all[unescape.Replace(f[4])] = true
		}
	}
	return all
}

// rootWalk is a listing of a root disk.
type rootWalk struct {
	mounts map[string]bool // paths, from the top
	end    time.Time

	top    int    // descriptor
	device uint64 // of the top
	looked int
	names  int // bytes
	files  []rootFile
	buf    [direntBytes]byte
	target [maxTarget]byte
}

// all lists a tree breadth-first, so that one large directory does not crowd out the others.
func (w *rootWalk) all(top string) (err error) {
	w.top, err = unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("list files of the root disk: %w", err)
	}
	defer unix.Close(w.top)
	var st unix.Stat_t
	if err := unix.Fstat(w.top, &st); err != nil {
		return fmt.Errorf("list files of the root disk: %w", err)
	}
	w.device = st.Dev
	w.files = append(w.files, rootFile{Path: "/", Mode: st.Mode, UID: st.Uid, GID: st.Gid})
	for _, p := range localDirs {
		if dir, err := w.open(path.Dir(p)); err == nil {
			w.add(dir, p)
			unix.Close(dir)
		}
	}
	for i := 0; i < len(w.files); i++ {
		if f := w.files[i]; f.Mode&unix.S_IFMT == unix.S_IFDIR {
			whole := w.read(string(f.Path)) // moves files
			w.files[i].Unread = !whole
		}
	}
	return nil
}

// full reports whether the limits are reached.
func (w *rootWalk) full() bool {
	return w.looked >= mostLooked || w.names >= mostNames || time.Now().After(w.end)
}

// read adds the entries of a directory, and reports whether they are complete.
func (w *rootWalk) read(p string) bool {
	if w.full() {
		return false
	}
	dir, err := w.open(p)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	most := w.looked + mostInDir
	for e, err := range dirents(dir, w.buf[:]) {
		if err != nil {
			return false
		}
		p := path.Join(p, e.name)
		if w.full() || w.looked == most || len(p) > maxRootPath {
			return false
		}
		w.looked++
		w.add(dir, p)
	}
	return true
}

// open opens a directory of the same file system without following links. O_NOATIME avoids writes.
func (w *rootWalk) open(p string) (int, error) {
	return unix.Openat2(w.top, "."+p, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NOATIME | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
}

// add adds the entry of an open directory with that path. It does not access mounts.
func (w *rootWalk) add(dir int, p string) {
	if w.mounts[p] || leftOut(p) {
		return
	}
	name := path.Base(p)
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if err != nil || st.Dev != w.device {
		return // it was removed, or mounted over
	}
	f := rootFile{Path: holt.OSString(p), Mode: st.Mode, Size: st.Size, UID: st.Uid, GID: st.Gid, MTime: st.Mtim.Nano()}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		n, _ := unix.Readlinkat(dir, name, w.target[:])
		f.Target = holt.OSString(w.target[:max(n, 0)])
	}
	w.names += len(p) + len(f.Target)
	w.files = append(w.files, f)
}

// vet validates a guest's description of a file.
func (f rootFile) vet() (info holt.FileInfo, ok bool) {
	p := string(f.Path)
	if len(p) > maxRootPath || !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) ||
		len(path.Base(p)) > maxName || f.Unread && f.Mode&unix.S_IFMT != unix.S_IFDIR {
		return info, false
	}
	info, err := vetFile(holt.FileInfo{
		Kind: fileKind(f.Mode), Size: f.Size, Mode: f.Mode & 0o7777, UID: f.UID, GID: f.GID, ModTime: time.Unix(0, f.MTime).UTC(), Target: f.Target,
	}, p)
	return info, err == nil
}
