package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// termDirs are where ncurses looks for terminals' descriptions, besides $TERMINFO, ~/.terminfo and $TERMINFO_DIRS.
var termDirs = []string{"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo"}

const maxTERM = 64 // bytes

// fallbackTERMs are what stands in for a kind of terminal that the guest has no description of: the first of those
// whose prefix fits that it has. All but the terminal multiplexers of today understand what xterm does.
var fallbackTERMs = []struct{ prefix, kind string }{
	{"tmux", "tmux-256color"}, {"tmux", "screen-256color"}, {"screen", "screen-256color"},
	{"linux", "linux"}, {"vt", "vt100"}, {"", defaultTERM}, {"", "xterm"}, {"", "vt100"},
}

// setTERM gives variables a kind of terminal that programs find a description of in the machine whose root is at
// root: the given one, or the nearest. Without a description clear, less and vim do not work.
func setTERM(vars map[string]string, root string, user account) {
	kind, ok := vars["TERM"]
	if !ok {
		return
	}
	// The home comes last: it may have to be waited for.
	dirs := append(slices.Clone(termDirs), filepath.SplitList(vars["TERMINFO_DIRS"])...)
	dirs = append(dirs, vars["TERMINFO"], filepath.Join(user.Home, ".terminfo"))
	find := func() error {
		vars["TERM"] = nearestTERM(kind, func(kind string) bool { return describes(root, dirs, kind) })
		return nil
	}
	if os.Geteuid() != 0 || as(user, find) != nil { // the user chooses directories, so they are looked at with the user's rights
		find()
	}
}

// nearestTERM returns the first kind that is known, the given one before those that stand in for it.
func nearestTERM(kind string, known func(string) bool) string {
	if validTERM(kind) {
		if known(kind) {
			return kind
		}
		for _, f := range fallbackTERMs {
			if strings.HasPrefix(kind, f.prefix) && known(f.kind) {
				return f.kind
			}
		}
	}
	return defaultTERM
}

func validTERM(kind string) bool {
	return kind != "" && len(kind) <= maxTERM && kind[0] != '.' && !strings.ContainsFunc(kind, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '/' })
}

// describes looks for a description as ncurses names it: in a directory of the name's first letter, or its number.
func describes(root string, dirs []string, kind string) bool {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, letter := range []string{kind[:1], fmt.Sprintf("%02x", kind[0])} {
			if st, err := os.Stat(filepath.Join(root+dir, letter, kind)); err == nil && st.Mode().IsRegular() {
				return true
			}
		}
	}
	return false
}
