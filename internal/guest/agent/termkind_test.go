package agent

import (
	"os"
	"strings"
	"testing"
)

// TestUnknownTerminalType: an unknown terminal type is replaced by a known one.
func TestUnknownTerminalType(t *testing.T) {
	root := guestWith(t, map[string]string{
		"/lib/terminfo/x/xterm-256color": "", "/lib/terminfo/x/xterm": "", "/usr/share/terminfo/s/screen-256color": "", "/lib/terminfo/l/linux": "",
		"/lib/terminfo/d/dumb": "", "/etc/terminfo/61/alacritty": "", "/home/agent/.terminfo/x/xterm-ghostty": "", "/mine/x/xterm-mine": "",
	})
	agent := account{Name: "agent", Home: "/home/agent", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	for _, c := range []struct{ given, want string }{
		{"xterm-256color", "xterm-256color"}, {"xterm", "xterm"}, {"dumb", "dumb"}, {"alacritty", "alacritty"},
		{"xterm-ghostty", "xterm-ghostty"}, {"xterm-kitty", "xterm-256color"}, {"foot", "xterm-256color"}, {"wezterm", "xterm-256color"},
		{"tmux-256color", "screen-256color"}, {"screen.xterm-256color", "screen-256color"}, {"linux-16color", "linux"}, {"vt220", "xterm-256color"},
		{"", "xterm-256color"}, {"../x/xterm", "xterm-256color"}, {".", "xterm-256color"}, {"x term", "xterm-256color"}, {strings.Repeat("x", 65), "xterm-256color"},
		{"xterm-mine", "xterm-mine"},
	} {
		vars := map[string]string{"TERM": c.given, "TERMINFO_DIRS": "relative::/mine"}
		if setTERM(vars, root, agent); vars["TERM"] != c.want {
			t.Errorf("%q becomes %q, want %q", c.given, vars["TERM"], c.want)
		}
	}
	vars := map[string]string{"TERM": "xterm-mine", "TERMINFO": "/mine"}
	if setTERM(vars, root, agent); vars["TERM"] != "xterm-mine" {
		t.Errorf("of $TERMINFO: %s", vars["TERM"])
	}
	vars = map[string]string{}
	if setTERM(vars, root, agent); len(vars) != 0 {
		t.Errorf("a run without a terminal has %v", vars)
	}
}
