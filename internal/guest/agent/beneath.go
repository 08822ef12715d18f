package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// errEscapes is returned if a path leads out of the directory that the caller is confined to.
var errEscapes = errors.New("a symbolic link escapes the workspace")

// reach is the resolution of a path within a directory. An operation on the
// resolved path stays inside even if links are changed at the same time.
type reach struct {
	path string // path through a descriptor of the directory with the last name
	ways []int  // descriptors from the top down
}

// reach resolves a path of the arguments; with follow also a symbolic link at
// its end. The caller must call end.
func (a fileArgs) reach(path holt.OSString, follow bool) (*reach, error) {
	if a.Beneath == "" {
		at := string(path)
		if follow {
			var err error
			if at, err = followLinks(at); err != nil {
				return nil, err
			}
		}
		return &reach{path: at}, nil
	}
	top := strings.TrimRight(string(a.Beneath), "/")
	inside, ok := strings.CutPrefix(strings.TrimRight(string(path), "/")+"/", top+"/")
	if !ok {
		return nil, errEscapes
	}
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r := &reach{ways: []int{fd}}
	name, err := r.walk(top, strings.Split(strings.TrimRight(inside, "/"), "/"), follow)
	if err != nil {
		r.end()
		return nil, err
	}
	r.path = fmt.Sprintf("/proc/self/fd/%d/%s", r.at(), name)
	return r, nil
}

// walk resolves names one by one and returns the last, whose directory is the last descriptor.
func (r *reach) walk(top string, names []string, follow bool) (last string, err error) {
	links := 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(r.ways) == 1 {
				return "", errEscapes
			}
			r.up()
			continue
		}
		if len(names) == 0 && !follow {
			return name, nil
		}
		fd, err := unix.Openat(r.at(), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT && len(names) == 0 {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		r.ways = append(r.ways, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return "", err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			if len(names) == 0 {
				r.up()
				return name, nil
			}
			continue
		}
		var buf [unix.PathMax]byte
		n, err := unix.Readlinkat(fd, "", buf[:])
		if r.up(); err != nil {
			return "", err
		}
		if links++; links > mostFollowed {
			return "", unix.ELOOP
		}
		target := string(buf[:n])
		if strings.HasPrefix(target, "/") {
			inside, ok := strings.CutPrefix(target, top)
			if !ok || inside != "" && inside[0] != '/' {
				return "", errEscapes
			}
			for len(r.ways) > 1 {
				r.up()
			}
			target = inside
		}
		names = append(strings.Split(target, "/"), names...)
	}
	return ".", nil
}

func (r *reach) at() int { return r.ways[len(r.ways)-1] }

// up closes the deepest directory.
func (r *reach) up() {
	unix.Close(r.at())
	r.ways = r.ways[:len(r.ways)-1]
}

func (r *reach) end() {
	for len(r.ways) > 0 {
		r.up()
	}
}

// makeParents creates missing parent directories, each relative to the one above.
func (a fileArgs) makeParents(user *account) error {
	path := string(a.Path)
	for i := len(a.Beneath) + 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		r, err := a.reach(holt.OSString(path[:i]), true)
		if err != nil {
			return err
		}
		err = mkdir(r.path, 0o755, user, false)
		if info, seen := os.Stat(r.path); seen == nil && info.IsDir() {
			err = nil
		}
		if r.end(); err != nil {
			return err
		}
	}
	return nil
}
