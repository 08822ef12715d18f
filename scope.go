package holt

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Scope is one thing that says what a token may do, as people write it:
//
//	admin                          what is the host's, and every tenant's things
//	read-only                      look, and change nothing; looking into a computer that sleeps wakes it
//	computer:REF                   this computer with what belongs to it and its workspace, and no other
//	user:NAME                      only as this Linux user, in runs, terminals and over SSH
//	workspace:REF[:read][:/PATH]   the files of this workspace, from a directory on, to read only or to change, too
//	port:REF:N                     connections to this port of a computer
//
// REF is an id; the name of something stands for its id when a token is made. repo:… and bucket:… have
// their place here and are refused (Unsupported) until there are repos and artifacts.
//
// Without any of computer, workspace and port a token covers all of its tenant; with some of them it covers
// these together and nothing else. user and read-only narrow that further.
type Scope string

// MostScopes is how many scopes a token may have.
const MostScopes = 64

// Rights are what scopes come to.
type Rights struct {
	Admin      bool
	ReadOnly   bool
	Computers  []ComputerID
	Users      []string // none: any
	Workspaces []WorkspaceScope
	Ports      []PortScope
}

// WorkspaceScope is the files of a workspace, from Path on.
type WorkspaceScope struct {
	Workspace WorkspaceID
	Path      string // clean and absolute; "/": all of it
	ReadOnly  bool
}

// PortScope is one TCP port of a computer.
type PortScope struct {
	Computer ComputerID
	Port     int
}

// ParseScopes reads scopes whose things are named by id.
//
// Errors: InvalidArgument, Unsupported (repos and buckets).
func ParseScopes(scopes []Scope) (r Rights, err error) {
	if len(scopes) > MostScopes {
		return r, Errorf(InvalidArgument, "a token cannot have %d scopes", len(scopes)).WithHint("at most %d", MostScopes)
	}
	for _, s := range scopes {
		if err := r.add(string(s)); err != nil {
			return Rights{}, err
		}
	}
	if r.Admin && (r.ReadOnly || r.Narrow() || len(r.Users) > 0) {
		return Rights{}, Errorf(InvalidArgument, "admin cannot be narrowed by other scopes").WithHint("leave admin out, or the others")
	}
	return r, nil
}

// CutScope parts a scope into its kind, what it names, and the rest: computer:X, port:X:80, workspace:X:read:/a.
func CutScope(s Scope) (kind, ref, rest string) {
	kind, rest, _ = strings.Cut(string(s), ":")
	ref, rest, _ = strings.Cut(rest, ":")
	return kind, ref, rest
}

// Named returns a scope with another name for its thing.
func (s Scope) Named(ref string) Scope {
	kind, _, rest := CutScope(s)
	if rest != "" {
		ref += ":" + rest
	}
	return Scope(kind + ":" + ref)
}

func (r *Rights) add(s string) error {
	kind, ref, rest := CutScope(Scope(s))
	var err error
	switch kind {
	case "admin", "read-only":
		if s != kind {
			return badScope(s)
		}
		r.Admin, r.ReadOnly = r.Admin || kind == "admin", r.ReadOnly || kind == "read-only"
	case "computer":
		var id ComputerID
		if id, err = ParseComputerID(ref); err == nil && rest != "" {
			err = badScope(s)
		}
		r.Computers = append(r.Computers, id)
	case "user":
		if !LinuxUser(ref) || rest != "" {
			return badScope(s)
		}
		r.Users = append(r.Users, ref)
	case "workspace":
		return r.addWorkspace(s, ref, rest)
	case "port":
		var p PortScope
		if p.Computer, err = ParseComputerID(ref); err == nil {
			p.Port, err = ParsePort(rest)
		}
		r.Ports = append(r.Ports, p)
	case "repo", "bucket":
		return Errorf(Unsupported, "there are no %ss yet, and no tokens for them", kind).WithHint("leave %q out", clip(s))
	default:
		return badScope(s)
	}
	return err
}

func (r *Rights) addWorkspace(s, ref, rest string) error {
	id, err := ParseWorkspaceID(ref)
	if err != nil {
		return err
	}
	w := WorkspaceScope{Workspace: id, Path: "/"}
	mode, dir, more := strings.Cut(rest, ":")
	switch {
	case rest == "":
	case strings.HasPrefix(rest, "/"):
		w.Path = rest
	case mode != "read" && mode != "write", more && !strings.HasPrefix(dir, "/"):
		return badScope(s)
	default:
		w.ReadOnly = mode == "read"
		if more {
			w.Path = dir
		}
	}
	if w.Path != path.Clean(w.Path) || strings.ContainsRune(w.Path, 0) || len(w.Path) > 4095 {
		return Errorf(InvalidArgument, "%q is no directory that a scope can name", clip(w.Path)).WithHint("give an absolute path without . and .. in it, as /reports")
	}
	r.Workspaces = append(r.Workspaces, w)
	return nil
}

func badScope(s string) error {
	return Errorf(InvalidArgument, "%q is no scope of a token", clip(s)).
		WithHint("give admin, read-only, computer:NAME, user:NAME, workspace:NAME[:read][:/PATH] or port:COMPUTER:N")
}

// LinuxUser tells whether s can name a Linux user, or is the number of one.
func LinuxUser(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c == '_', c >= '0' && c <= '9':
		case c == '-' && i > 0:
		default:
			return false
		}
	}
	return true
}

// Narrow says that only the things that are named are covered, and not all of the tenant.
func (r Rights) Narrow() bool {
	return len(r.Computers)+len(r.Workspaces)+len(r.Ports) > 0
}

// All says that nothing in the tenant is out of reach.
func (r Rights) All() bool { return !r.ReadOnly && !r.Narrow() && len(r.Users) == 0 }

// Scopes writes r as scopes.
func (r Rights) Scopes() []Scope {
	all := []Scope{}
	if r.Admin {
		all = append(all, "admin")
	}
	if r.ReadOnly {
		all = append(all, "read-only")
	}
	for _, id := range r.Computers {
		all = append(all, Scope("computer:"+string(id)))
	}
	for _, name := range r.Users {
		all = append(all, Scope("user:"+name))
	}
	for _, w := range r.Workspaces {
		s := "workspace:" + string(w.Workspace)
		if w.ReadOnly {
			s += ":read"
		}
		if w.Path != "/" {
			s += ":" + w.Path
		}
		all = append(all, Scope(s))
	}
	for _, p := range r.Ports {
		all = append(all, Scope("port:"+string(p.Computer)+":"+strconv.Itoa(p.Port)))
	}
	return all
}

// User says whether one may be the Linux user; "" is agent, as everywhere.
func (r Rights) User(name string) bool {
	if name == "" {
		name = "agent"
	}
	return len(r.Users) == 0 || slices.Contains(r.Users, name)
}

// Computer says whether all of a computer is covered.
func (r Rights) Computer(id ComputerID) bool { return !r.Narrow() || slices.Contains(r.Computers, id) }

// Port says whether a port of a computer is covered.
func (r Rights) Port(id ComputerID, port int) bool {
	return r.Computer(id) || port > 0 && slices.Contains(r.Ports, PortScope{id, port})
}

// Dir returns the directory from which on a path of a workspace is covered, to read or to change; all
// says that it is the whole workspace.
func (r Rights) Dir(id WorkspaceID, p string, change bool) (dir string, ok bool) {
	p = path.Clean("/" + p)
	for _, w := range r.Workspaces {
		if w.Workspace != id || change && w.ReadOnly {
			continue
		}
		if w.Path == "/" {
			return "/", true
		}
		if p == w.Path || strings.HasPrefix(p, w.Path+"/") {
			dir, ok = w.Path, true
		}
	}
	return dir, ok
}

// Within says whether r gives nothing that of does not: who has of may make a token with r.
func (r Rights) Within(of Rights) bool {
	switch {
	case of.Admin:
		return true
	case r.Admin, of.ReadOnly && !r.ReadOnly, of.Narrow() && !r.Narrow(), len(of.Users) > 0 && len(r.Users) == 0:
		return false
	}
	for _, name := range r.Users {
		if !of.User(name) {
			return false
		}
	}
	for _, id := range r.Computers {
		if !of.Computer(id) {
			return false
		}
	}
	for _, p := range r.Ports {
		if !of.Port(p.Computer, p.Port) {
			return false
		}
	}
	for _, w := range r.Workspaces {
		if _, ok := of.Dir(w.Workspace, w.Path, !w.ReadOnly && !r.ReadOnly); !ok && of.Narrow() {
			return false
		}
	}
	return true
}
