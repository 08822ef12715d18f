package agent

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"holt"
)

// What a guest says is shown to people and stored. These are the bounds of it,
// bytes.
const (
	maxSentence = 4 << 10 // an error's message or hint
	maxWord     = 255     // a host name, a version
)

// foreign returns a guest's error as the host passes it on: with a code that
// there is and that a guest may use, in bounded words that do nothing to a
// terminal, and without details, which nobody would have looked at.
func foreign(e *holt.Error) *holt.Error {
	code := e.Code
	switch code {
	case holt.InvalidArgument, holt.NotFound, holt.AlreadyExists, holt.Conflict, holt.Forbidden, holt.OutOfSpace,
		holt.TooMany, holt.Unsupported, holt.Unavailable, holt.Timeout, holt.Corrupt:
	default: // who may call, and with which token, is never the guest's to say
		code = holt.Internal
	}
	return &holt.Error{Code: code, Message: plain(e.Message, maxSentence), Hint: plain(e.Hint, maxSentence)}
}

// malformed says that what a guest sent cannot be read. A decoder's words quote what it was given.
func malformed(what string, err error) error {
	return holt.Errorf(holt.Corrupt, "malformed %s: %s", what, plain(holt.Clip(err.Error(), maxWord), 2*maxWord))
}

// plain returns at most n bytes of a guest's text in one line of printable
// characters; others become U+FFFD.
func plain(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// vetHello bounds what a guest says of itself.
func vetHello(h Hello) Hello {
	for _, word := range []*string{&h.Version, &h.Instance, &h.BootID, &h.Hostname} {
		*word = plain(*word, maxWord)
	}
	h.Runs = max(0, h.Runs)
	return h
}

var fingerprintRE = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)

// vetIdentified bounds what a guest says it has become. What it drew and its host keys'
// fingerprints are stored.
func vetIdentified(d Identified) (Identified, error) {
	d.Hostname, d.MachineID, d.Ended = plain(d.Hostname, maxWord), plain(d.MachineID, maxWord), max(0, d.Ended)
	if len(d.Drawn) != 0 && len(d.Drawn) != drawnBytes {
		return Identified{}, holt.Errorf(holt.Corrupt, "guest says that it drew %d random bytes", len(d.Drawn))
	}
	for _, keys := range [][]string{d.HostKeys, d.FormerKeys} {
		if len(keys) > maxHostKeys {
			return Identified{}, holt.Errorf(holt.Corrupt, "guest says that it has %d SSH host keys", len(keys))
		}
		for _, key := range keys {
			if !fingerprintRE.MatchString(key) {
				return Identified{}, holt.Errorf(holt.Corrupt, "guest says that %q is an SSH host key's fingerprint", clip(key))
			}
		}
	}
	return d, nil
}

// What is said of units that are not up.
const (
	mostUnready = 8
	mostLines   = 20 // of the log of each
)

// vetReadiness bounds what a guest says of its units. Their names are from those it was asked for.
func vetReadiness(r Readiness, units []string) Readiness {
	r.State = plain(r.State, maxWord)
	r.Unready = slices.DeleteFunc(r.Unready, func(u Unit) bool { return !slices.Contains(units, u.Name) })
	r.Unready = r.Unready[:min(len(r.Unready), mostUnready)]
	for i, u := range r.Unready {
		lines := strings.Split(u.Log, "\n")
		lines = lines[max(0, len(lines)-mostLines):]
		for j, line := range lines {
			lines[j] = plain(line, maxWord)
		}
		r.Unready[i].State, r.Unready[i].Log = plain(u.State, maxWord), strings.Join(lines, "\n")
	}
	return r
}

var signalRE = regexp.MustCompile(`^SIG[A-Z0-9+-]{1,16}$`)

// vetRun bounds what a guest says of a run that is returned by itself.
func vetRun(r holt.Run) (holt.Run, error) {
	if r.State != holt.RunRunning && r.State != holt.RunExited {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest says that a run is %q", clip(string(r.State)))
	}
	if r.Signal != "" && !signalRE.MatchString(r.Signal) {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest says that a run was ended by %q", clip(r.Signal))
	}
	if !slices.Contains([]holt.RunReason{"", holt.RunRebooted, holt.RunPoweredOff}, r.Reason) {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "the guest sent an unknown reason for the end of a run: %q", clip(string(r.Reason)))
	}
	r.OutOfMemory = vetMemory(r.OutOfMemory)
	r.Background = min(max(0, r.Background), math.MaxInt32)
	return r, nil
}

// maxTold is how much of what a terminal runs is taken from its guest, bytes.
const maxTold = 4 << 10

// toldSpec returns the beginning of what a terminal runs, as a guest says it. Of those that the
// host opened the host itself knows all.
func toldSpec(s holt.TerminalSpec) holt.TerminalSpec {
	left := maxTold
	cut := func(word string) string {
		word = word[:min(len(word), left)]
		left = max(0, left-len(word)-1)
		return word
	}
	told := holt.TerminalSpec{User: cut(s.User), Cwd: holt.OSString(cut(string(s.Cwd))), Command: holt.OSString(cut(string(s.Command))), Size: s.Size}
	for _, arg := range s.Argv {
		if left == 0 {
			break
		}
		told.Argv = append(told.Argv, cut(arg))
	}
	return told
}

// vetTerminal bounds what a guest says of a terminal. Its name and what it runs
// are stored.
func vetTerminal(t holt.Terminal) (holt.Terminal, error) {
	if t.State != holt.TerminalRunning && t.State != holt.TerminalExited {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest says that a terminal is %q", clip(string(t.State)))
	}
	if _, err := holt.ParseTerminalID(string(t.ID)); err != nil {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest has a terminal %q", clip(string(t.ID)))
	}
	if _, err := holt.ParseName(t.Name); err != nil {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest has a terminal named %q", clip(t.Name))
	}
	if t.Signal != "" && !signalRE.MatchString(t.Signal) {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest says that a terminal was ended by %q", clip(t.Signal))
	}
	t.Spec = toldSpec(t.Spec)
	t.Spec.Name = t.Name
	t.Size, t.Attached = bounded(t.Size), min(max(0, t.Attached), maxAttached)
	return t, nil
}

// vetFile takes a guest's description of the file at path.
func vetFile(info holt.FileInfo, at string) (holt.FileInfo, error) {
	switch info.Kind {
	case "file", "dir", "symlink", "fifo", "socket", "char", "block":
	default:
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest says that a file is a %q", clip(info.Kind))
	}
	if info.Size < 0 || info.Mode > 0o7777 || len(info.Target) > maxTarget {
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest's description of a file cannot be right")
	}
	info.Path, info.Name = holt.OSString(at), holt.OSString(path.Base(at))
	return info, nil
}

const (
	maxTarget = 4096 // PATH_MAX, of what a symbolic link says
	maxName   = 255  // NAME_MAX
)

// vetEntry takes a guest's description of an entry of dir. The name goes into
// paths, also of the host: it must be one name.
func vetEntry(info holt.FileInfo, dir string) (holt.FileInfo, error) {
	name := string(info.Name)
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest lists a file named %q", clip(name))
	}
	return vetFile(info, path.Join(dir, name))
}
