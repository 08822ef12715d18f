package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// termDirs are the directories where ncurses looks for terminal descriptions,
// besides $TERMINFO, ~/.terminfo and $TERMINFO_DIRS.
var termDirs = []string{"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo"}

const maxTERM = 64 // bytes

// fallbackTERMs are replacements for terminal types that the guest does not
// know: the first with a matching prefix that it knows. Current terminals,
// except multiplexers, are compatible with xterm.
var fallbackTERMs = []struct{ prefix, kind string }{
	{"tmux", "tmux-256color"}, {"tmux", "screen-256color"}, {"screen", "screen-256color"},
	{"linux", "linux"}, {"vt", "vt100"}, {"", defaultTERM}, {"", "xterm"}, {"", "vt100"},
}

// setTERM sets TERM to a type that programs of the machine with its root at
// root know: the given one, or the nearest. Without a description clear, less
// and vim do not work.
func setTERM(vars map[string]string, root string, user account) {
	kind, ok := vars["TERM"]
	if !ok {
		return
	}
	// The home comes last: reading it may block.
	dirs := append(slices.Clone(termDirs), filepath.SplitList(vars["TERMINFO_DIRS"])...)
	dirs = append(dirs, vars["TERMINFO"], filepath.Join(user.Home, ".terminfo"))
	find := func() error {
		vars["TERM"] = nearestTERM(kind, func(kind string) bool { return describes(root, dirs, kind) })
		return nil
	}
	if os.Geteuid() != 0 || as(user, find) != nil { // the user chooses the directories, so read them with the user's rights
		find()
	}
}

// nearestTERM returns the first known type: the given one, or one of its replacements.
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

// describes reports whether a description exists under ncurses' names: in a
// directory named after the first letter, or its code.
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
