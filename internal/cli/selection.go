package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/spf13/cobra"

	"holt"
	"holt/internal/store/parcel"
)

const (
	ignoreFile  = ".holtignore"
	mostIgnored = 1 << 20 // bytes of one
	mostNotSent = 100     // paths that are named
)

// selection says what of a directory of this machine is sent, and keeps account of what is not.
type selection struct {
	root    string
	exclude []rule
	outputs string // a directory that this command writes to; "": none
	plain   bool   // only directories, files and symlinks
	ignore  map[string][]rule
	not     notSent
}

// notSent is what of a directory stayed here.
type notSent struct {
	N     int      `json:"count,omitempty"`
	First []string `json:"first,omitempty"` // at most 100 paths, each with why
	lost  int      // of those, how many were not left out by request
}

func (n *notSent) add(name, why string) {
	if n.N++; len(n.First) < mostNotSent {
		n.First = append(n.First, strings.ToValidUTF8(name, "\uFFFD")+": "+why)
	}
}

// say names what was not sent.
func (n *notSent) say(a *app) {
	const named = 5
	if n.N == 0 {
		return
	}
	text := strings.Join(n.First[:min(named, len(n.First))], "; ")
	if n.N > named {
		text += fmt.Sprintf("; and %d more", n.N-named)
	}
	a.say("holt: left out %s", visible(text))
}

// excludeFlag adds the flag that says what of a directory is not sent.
func excludeFlag(cmd *cobra.Command, globs *[]string) {
	cmd.Flags().StringArrayVar(globs, "exclude", nil, "leave out files that match this pattern of gitignore(5), such as '*.log' or /build/ (repeatable)")
}

// selectFrom is what is sent of a directory, without what the patterns name and what the directory's own files .holtignore do.
func selectFrom(root string, globs []string) (*selection, error) {
	s := &selection{root: root, ignore: map[string][]rule{}}
	for _, glob := range globs {
		r, ok, err := parseRule(glob)
		if err != nil || !ok {
			return nil, holt.Errorf(holt.InvalidArgument, "--exclude %q is not a valid pattern", glob).WithHint("use a pattern of gitignore(5), such as '*.log', /build/ or '!keep.log'")
		}
		s.exclude = append(s.exclude, r)
	}
	return s, nil
}

// leaveOutputs has a directory that this command writes to left out, if it lies in the root.
func (s *selection) leaveOutputs(dir string) error {
	if dir == "" {
		return nil
	}
	root, err := realPath(s.root)
	if err != nil {
		return err
	}
	at, err := realPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // there is nothing to leave out
	}
	if err != nil {
		return err
	}
	if rel, err := filepath.Rel(root, at); err == nil && rel != "." && filepath.IsLocal(rel) {
		s.outputs = filepath.ToSlash(rel)
	}
	return nil
}

func realPath(p string) (string, error) {
	p, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", err
	}
	return filepath.Abs(p)
}

// options are those of a parcel that holds what is selected.
func (s *selection) options() parcel.Options { return parcel.Options{Skip: s.skip, Unread: s.unread} }

// skip says whether something stays out.
func (s *selection) skip(p string, kind parcel.Kind) (bool, error) {
	name, err := s.name(p)
	if err != nil {
		return false, err
	}
	why := ""
	switch out, err := s.excluded(name, kind == parcel.Dir); {
	case err != nil:
		return false, err
	case name == s.outputs:
		why = "it is the output directory"
	case out:
		why = "excluded"
	case s.plain && kind == parcel.Fifo:
		why = "it is a pipe"
	case s.plain && kind == parcel.Socket:
		why = "it is a socket"
	case s.plain && kind.Device():
		why = "it is a device"
	default:
		return false, nil
	}
	s.not.add(name, why)
	return true, nil
}

// unread notes what cannot be read.
func (s *selection) unread(p string, why error) {
	if name, err := s.name(p); err == nil {
		p = name
	}
	s.not.lost++
	s.not.add(p, why.Error())
}

// name is a path below the root, with slashes.
func (s *selection) name(p string) (string, error) {
	rel, err := filepath.Rel(s.root, p)
	return filepath.ToSlash(rel), err
}

// excluded says what the last rule that matches says: those of the files .holtignore from the top down, then the flags.
func (s *selection) excluded(name string, dir bool) (out bool, err error) {
	for at := ""; ; {
		rules, err := s.rules(at)
		if err != nil {
			return false, err
		}
		rest := strings.TrimPrefix(name[len(at):], "/")
		out = decide(rules, rest, dir, out)
		next, _, deeper := strings.Cut(rest, "/")
		if !deeper {
			return decide(s.exclude, name, dir, out), nil
		}
		at = path.Join(at, next)
	}
}

func decide(rules []rule, name string, dir, out bool) bool {
	for _, r := range rules {
		if (dir || !r.dir) && doublestar.MatchUnvalidated(r.glob, name) {
			out = !r.not
		}
	}
	return out
}

// rules are those of the file .holtignore in a directory below the root.
func (s *selection) rules(dir string) ([]rule, error) {
	if rules, ok := s.ignore[dir]; ok {
		return rules, nil
	}
	at := filepath.Join(s.root, filepath.FromSlash(dir), ignoreFile)
	text, err := readIgnore(at)
	if err != nil {
		return nil, here(err, at)
	}
	var rules []rule
	for i, line := range strings.Split(text, "\n") {
		r, ok, err := parseRule(line)
		if err != nil {
			return nil, holt.Errorf(holt.InvalidArgument, "%s:%d: %q is not a valid pattern", at, i+1, line).WithHint("see gitignore(5) for the syntax")
		}
		if ok {
			rules = append(rules, r)
		}
	}
	s.ignore[dir] = rules
	return rules, nil
}

// readIgnore returns the content of a file .holtignore; "" if there is none.
func readIgnore(at string) (string, error) {
	info, err := os.Lstat(at)
	if err != nil || !info.Mode().IsRegular() { // nothing of that name, or a pipe that would be waited for
		return "", nil
	}
	f, err := os.Open(at)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostIgnored))
	return string(text), err
}

// rule is one pattern of gitignore(5).
type rule struct {
	glob string // of a path below the directory that has the rule
	not  bool   // what matches is sent after all
	dir  bool   // only directories match
}

// literalBraces makes braces of a pattern stand for themselves, as they do in gitignore(5).
var literalBraces = strings.NewReplacer(`\\`, `\\`, `\{`, `\{`, `\}`, `\}`, `{`, `\{`, `}`, `\}`)

// parseRule reads a line; not ok: it is empty or a comment.
func parseRule(line string) (r rule, ok bool, err error) {
	line = strings.TrimSuffix(line, "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	if line == "" || line[0] == '#' {
		return r, false, nil
	}
	line, r.not = strings.CutPrefix(line, "!")
	line, r.dir = strings.CutSuffix(line, "/")
	inside, anchored := strings.CutPrefix(line, "/")
	if line = inside; !anchored && !strings.Contains(line, "/") {
		line = "**/" + line
	}
	if strings.HasSuffix(line, "/**") {
		line += "/*" // what is in the directory, not itself
	}
	r.glob = literalBraces.Replace(line)
	if inside == "" || !doublestar.ValidatePattern(r.glob) {
		return r, false, doublestar.ErrBadPattern
	}
	return r, true, nil
}
