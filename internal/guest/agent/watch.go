package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holt"
)

const (
	maxWatched = 8192 // directories of one watch
	watchMask  = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_DELETE | unix.IN_ATTRIB |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK
)

// watcher converts inotify's events to FileEvents.
type watcher struct {
	file      *os.File
	fd        int
	root      string
	recursive bool
	paths     map[int32]string // by watch descriptor
	full      bool             // maxWatched was reached and reported
}

// watchFiles streams changes under a path until the host closes the stream or
// the path itself is removed.
func watchFiles(ctx context.Context, st *serverStream) error {
	args, err := fileArguments(st.args)
	if err != nil {
		return err
	}
	w, err := newWatcher(filepath.Clean(string(args.Path)), args.Recursive)
	if err != nil {
		return fileError("watch", string(args.Path), err)
	}
	defer w.file.Close()
	if err := st.agree(nil); err != nil {
		return err
	}
	ctx, cancel := st.untilClosed(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { w.file.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return err
		}
		events, gone := w.translate(buf[:n])
		for len(events) > 0 {
			k := min(len(events), listBatch)
			if err := writeAnswer(st, events[:k], nil); err != nil {
				return err
			}
			events = events[k:]
		}
		if gone {
			return writeAnswer(st, []FileEvent{}, nil)
		}
	}
}

func newWatcher(root string, recursive bool) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, holt.Errorf(holt.TooMany, "open a file watch: %w", err)
	}
	w := &watcher{
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		root: root, recursive: recursive, paths: map[int32]string{},
	}
	if _, err := w.add(root); err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// add watches path and, if the watch is recursive, the directories below it. It
// returns what it found, because a new directory may already have entries.
func (w *watcher) add(path string) (found []FileEvent, err error) {
	if len(w.paths) >= maxWatched {
		if !w.full {
			w.full = true
			found = append(found, FileEvent{Kind: FileOverflow, Path: path, Dir: true})
		}
		return found, nil
	}
	wd, err := unix.InotifyAddWatch(w.fd, path, watchMask)
	if errors.Is(err, unix.ENOSPC) {
		return nil, holt.Errorf(holt.TooMany, "watch %s: the computer's limit of file watches is reached", path)
	} else if err != nil {
		return nil, err
	}
	w.paths[int32(wd)] = path
	if !w.recursive {
		return nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil // not a directory, or removed
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		found = append(found, FileEvent{Kind: FileCreated, Path: child, Dir: e.IsDir()})
		if !e.IsDir() {
			continue
		}
		below, err := w.add(child)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		found = append(found, below...)
	}
	return found, nil
}

// move is half of a rename, waiting for the other half.
type move struct {
	cookie uint32
	path   string
	dir    bool
}

// translate decodes raw events. gone reports that the watched path was removed.
func (w *watcher) translate(b []byte) (events []FileEvent, gone bool) {
	var from *move
	flush := func() {
		if from != nil {
			events = append(events, FileEvent{Kind: FileRemoved, Path: from.path, Dir: from.dir})
			w.forget(from.path)
			from = nil
		}
	}
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask, cookie := binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:size]), "\x00")
		b = b[size:]
		dir, ok := w.paths[wd]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			events = append(events, FileEvent{Kind: FileOverflow, Path: w.root})
			continue
		}
		if mask&unix.IN_IGNORED != 0 {
			delete(w.paths, wd)
			gone = gone || (ok && dir == w.root)
			continue
		}
		if !ok {
			continue
		}
		path, isDir := filepath.Join(dir, name), mask&unix.IN_ISDIR != 0
		if from != nil && (mask&unix.IN_MOVED_TO == 0 || cookie != from.cookie) {
			flush()
		}
		switch {
		case mask&unix.IN_MOVED_FROM != 0:
			from = &move{cookie: cookie, path: path, dir: isDir}
		case mask&unix.IN_MOVED_TO != 0 && from != nil:
			w.moved(from.path, path)
			events = append(events, FileEvent{Kind: FileRenamed, Path: path, From: from.path, Dir: isDir})
			from = nil
		case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			events = append(events, FileEvent{Kind: FileCreated, Path: path, Dir: isDir})
			if isDir && w.recursive {
				events = append(events, w.grow(path)...)
			}
		case mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
			events = appendOnce(events, FileEvent{Kind: FileWritten, Path: path})
		case mask&unix.IN_DELETE != 0:
			events = append(events, FileEvent{Kind: FileRemoved, Path: path, Dir: isDir})
		case mask&unix.IN_ATTRIB != 0:
			events = appendOnce(events, FileEvent{Kind: FileChanged, Path: path, Dir: isDir})
		case mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0 && dir == w.root:
			gone = true
		}
	}
	flush()
	return events, gone
}

// appendOnce omits a repetition of the last event.
func appendOnce(events []FileEvent, e FileEvent) []FileEvent {
	if n := len(events); n > 0 && events[n-1] == e {
		return events
	}
	return append(events, e)
}

// grow watches a new directory; what it cannot watch is reported as overflow.
func (w *watcher) grow(path string) []FileEvent {
	found, err := w.add(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, io.EOF) {
		found = append(found, FileEvent{Kind: FileOverflow, Path: path, Dir: true})
	}
	return found
}

// moved updates the watched paths at and below a renamed directory.
func (w *watcher) moved(from, to string) {
	for wd, path := range w.paths {
		if path == from {
			w.paths[wd] = to
		} else if rest, ok := strings.CutPrefix(path, from+"/"); ok {
			w.paths[wd] = filepath.Join(to, rest)
		}
	}
}

// forget stops watching a directory that left the tree.
func (w *watcher) forget(dir string) {
	for wd, path := range w.paths {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			unix.InotifyRmWatch(w.fd, uint32(wd))
		}
	}
}
