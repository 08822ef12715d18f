package agent

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"holt"
)

// leavingWord matches commands that may end their machine. For others systemd
// is not asked, which costs a process.
var leavingWord = regexp.MustCompile(`\b(reboot|poweroff|halt|shutdown|kexec|telinit|init +[06])\b`)

// leavingLimit is the timeout for systemd's answer.
const leavingLimit = 5 * time.Second

// leaving returns what systemd is about to do to the machine in which a run has just ended, or "".
func leaving(spec holt.RunSpec) holt.RunReason {
	if b, err := os.ReadFile("/proc/1/comm"); err != nil || strings.HasPrefix(string(b), "systemd-shut") {
		line, _ := os.ReadFile("/proc/1/cmdline")
		return leavingVerb(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	if !leavingWord.MatchString(string(spec.Command) + strings.Join(spec.Argv, " ")) {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), leavingLimit)
	defer cancel()
	jobs, err := exec.CommandContext(ctx, "systemctl", "list-jobs", "--no-legend", "--plain").Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(jobs)) { // number unit kind state
		if f := strings.Fields(line); len(f) > 2 && f[2] == "start" && strings.HasSuffix(f[1], ".target") {
			if why := leavingVerb(f[1]); why != "" {
				return why
			}
		}
	}
	return ""
}

// leavingVerb returns the effect of a verb of systemd-shutdown(8), or of the target of that name.
func leavingVerb(words string) holt.RunReason {
	switch {
	case strings.Contains(words, "reboot"), strings.Contains(words, "kexec"):
		return holt.RunRebooted
	case strings.Contains(words, "poweroff"), strings.Contains(words, "halt"):
		return holt.RunPoweredOff
	}
	return ""
}
