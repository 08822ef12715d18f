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

// Limits of text from a guest, which is shown to people and stored, bytes.
const (
	maxSentence = 4 << 10 // an error's message or hint
	maxWord     = 255     // a host name, a version
)

// foreign returns a guest's error in a safe form: with a valid code that a
// guest may use, with bounded text without terminal control characters, and
// without details.
func foreign(e *holt.Error) *holt.Error {
	code := e.Code
	switch code {
	case holt.InvalidArgument, holt.NotFound, holt.AlreadyExists, holt.Conflict, holt.Forbidden, holt.OutOfSpace,
		holt.TooMany, holt.Unsupported, holt.Unavailable, holt.Timeout, holt.Corrupt:
	default: // a guest cannot decide about authorisation
		code = holt.Internal
	}
	return &holt.Error{Code: code, Message: plain(e.Message, maxSentence), Hint: plain(e.Hint, maxSentence)}
}

// malformed returns an error for undecodable data from a guest. The decoder's
// message may quote that data.
func malformed(what string, err error) error {
	return holt.Errorf(holt.Corrupt, "malformed %s: %s", what, plain(holt.Clip(err.Error(), maxWord), 2*maxWord))
}

// plain returns at most n bytes of untrusted text as one line of printable
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

// vetHello bounds a guest's description of itself.
func vetHello(h Hello) Hello {
	for _, word := range []*string{&h.Version, &h.Instance, &h.BootID, &h.Hostname} {
		*word = plain(*word, maxWord)
	}
	h.Runs = max(0, h.Runs)
	return h
}

var fingerprintRE = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)

// vetIdentified validates a guest's identity, since the drawn bytes and fingerprints are stored.
func vetIdentified(d Identified) (Identified, error) {
	d.Hostname, d.MachineID, d.Ended = plain(d.Hostname, maxWord), plain(d.MachineID, maxWord), max(0, d.Ended)
	if len(d.Drawn) != 0 && len(d.Drawn) != drawnBytes {
		return Identified{}, holt.Errorf(holt.Corrupt, "guest reports an invalid number of random bytes: %d", len(d.Drawn))
	}
	for _, keys := range [][]string{d.HostKeys, d.FormerKeys} {
		if len(keys) > maxHostKeys {
			return Identified{}, holt.Errorf(holt.Corrupt, "guest reports too many SSH host keys: %d", len(keys))
		}
		for _, key := range keys {
			if !fingerprintRE.MatchString(key) {
				return Identified{}, holt.Errorf(holt.Corrupt, "guest reports an invalid fingerprint of an SSH host key: %q", clip(key))
			}
		}
	}
	return d, nil
}

// Limits for units that are not up.
const (
	mostUnready = 8
	mostLines   = 20 // of each log
)

// vetReadiness bounds a guest's report about units; their names must be requested ones.
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

// vetRun validates a guest's description of a single run.
func vetRun(r holt.Run) (holt.Run, error) {
	if r.State != holt.RunRunning && r.State != holt.RunExited {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest reports an invalid state of a run: %q", clip(string(r.State)))
	}
	if r.Signal != "" && !signalRE.MatchString(r.Signal) {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest reports an invalid signal for a run: %q", clip(r.Signal))
	}
	if !slices.Contains([]holt.RunReason{"", holt.RunRebooted, holt.RunPoweredOff}, r.Reason) {
		return holt.Run{}, holt.Errorf(holt.Corrupt, "guest reports an unknown reason for the end of a run: %q", clip(string(r.Reason)))
	}
	r.OutOfMemory = vetMemory(r.OutOfMemory)
	r.Background = min(max(0, r.Background), math.MaxInt32)
	return r, nil
}

// maxTold limits a guest's description of a terminal's program, bytes.
const maxTold = 4 << 10

// toldSpec truncates a guest's description of a terminal's program. The host
// knows the full spec of terminals that it opened.
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

// vetTerminal validates a guest's description of a terminal, since its name and program are stored.
func vetTerminal(t holt.Terminal) (holt.Terminal, error) {
	if t.State != holt.TerminalRunning && t.State != holt.TerminalExited {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest reports an invalid state of a terminal: %q", clip(string(t.State)))
	}
	if _, err := holt.ParseTerminalID(string(t.ID)); err != nil {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest reports an invalid terminal id: %q", clip(string(t.ID)))
	}
	if _, err := holt.ParseName(t.Name); err != nil {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest reports an invalid terminal name: %q", clip(t.Name))
	}
	if t.Signal != "" && !signalRE.MatchString(t.Signal) {
		return holt.Terminal{}, holt.Errorf(holt.Corrupt, "guest reports an invalid signal for a terminal: %q", clip(t.Signal))
	}
	t.Spec = toldSpec(t.Spec)
	t.Spec.Name = t.Name
	t.Size, t.Attached = bounded(t.Size), min(max(0, t.Attached), maxAttached)
	return t, nil
}

// vetFile validates a guest's description of the file at path.
func vetFile(info holt.FileInfo, at string) (holt.FileInfo, error) {
	switch info.Kind {
	case "file", "dir", "symlink", "fifo", "socket", "char", "block":
	default:
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest reports an invalid kind of file: %q", clip(info.Kind))
	}
	if info.Size < 0 || info.Mode > 0o7777 || len(info.Target) > maxTarget {
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest reports an invalid description of a file")
	}
	info.Path, info.Name = holt.OSString(at), holt.OSString(path.Base(at))
	return info, nil
}

const (
	maxTarget = 4096 // PATH_MAX, of a symbolic link's target
	maxName   = 255  // NAME_MAX
)

// vetEntry validates a guest's description of an entry of dir. The name becomes
// part of paths, also on the host, so it must be a single name.
func vetEntry(info holt.FileInfo, dir string) (holt.FileInfo, error) {
	name := string(info.Name)
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return holt.FileInfo{}, holt.Errorf(holt.Corrupt, "guest listed a file with the invalid name %q", clip(name))
	}
	return vetFile(info, path.Join(dir, name))
}
