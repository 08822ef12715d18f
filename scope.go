package holt

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// Scope is one part of what a token may do:
//
//	admin                          everything, including settings of the host and all tenants
//	read-only                      only reads; reading from a paused computer wakes it
//	computer:REF                   only this computer, everything that belongs to it, and its workspace
//	user:NAME                      only as this Linux user, in runs, terminals and over SSH
//	workspace:REF[:read][:/PATH]   only files of this workspace, optionally below a directory, optionally read-only
//	port:REF:N                     only connections to this port of a computer
//	bucket:NAME[:read|write[:PREFIX]]
//	                               only artifacts of this bucket, optionally names that begin with PREFIX, optionally read-only
//
// REF is an id; a name is replaced by the id when the token is created. repo:… is reserved and refused (Unsupported)
// until repositories exist.
//
// Without computer, workspace, port and bucket scopes, a token covers its whole tenant; with some, it covers only those.
// user and read-only restrict it further.
type Scope string

// MostScopes is the maximum number of scopes of a token.
const MostScopes = 64

// Rights are parsed scopes.
type Rights struct {
	Admin      bool
	ReadOnly   bool
	Computers  []ComputerID
	Users      []string // none: any
	Workspaces []WorkspaceScope
	Ports      []PortScope
	Buckets    []BucketScope
}

// WorkspaceScope covers the files of a workspace below Path.
type WorkspaceScope struct {
	Workspace WorkspaceID
	Path      string // clean and absolute; "/": all files
	ReadOnly  bool
}

// BucketScope covers the artifacts of a bucket whose names begin with Prefix.
type BucketScope struct {
	Bucket, Prefix string
	ReadOnly       bool
}

// PortScope is one TCP port of a computer.
type PortScope struct {
	Computer ComputerID
	Port     int
}

// ParseScopes reads scopes whose objects are given by id.
//
// Errors: InvalidArgument, Unsupported (repos).
func ParseScopes(scopes []Scope) (r Rights, err error) {
	if len(scopes) > MostScopes {
		return r, Errorf(InvalidArgument, "%d scopes are too many for a token", len(scopes)).WithHint("use at most %d", MostScopes)
	}
	for _, s := range scopes {
		if err := r.add(string(s)); err != nil {
			return Rights{}, err
		}
	}
	if r.Admin && (r.ReadOnly || r.Narrow() || len(r.Users) > 0) {
		return Rights{}, Errorf(InvalidArgument, "admin cannot be combined with other scopes").WithHint("remove admin, or the other scopes")
	}
	return r, nil
}

// CutScope splits a scope into its kind, its object, and the rest: computer:X, port:X:80, workspace:X:read:/a.
func CutScope(s Scope) (kind, ref, rest string) {
	kind, rest, _ = strings.Cut(string(s), ":")
	ref, rest, _ = strings.Cut(rest, ":")
	return kind, ref, rest
}

// Named returns the scope with another reference to its object.
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
	case "bucket":
		mode, prefix, _ := strings.Cut(rest, ":")
		if rest != "" && mode != "read" && mode != "write" {
			return badScope(s)
		}
		b := BucketScope{Bucket: ref, Prefix: prefix, ReadOnly: mode == "read"}
		if _, err = ParseName(ref); err == nil && b.Prefix != "" {
			_, err = ParseArtifactName(b.Prefix)
		}
		r.Buckets = append(r.Buckets, b)
	case "repo":
		return Errorf(Unsupported, "scopes of kind %s are not supported yet", kind).WithHint("remove %q", clip(s))
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
		return Errorf(InvalidArgument, "invalid directory %q in a scope", clip(w.Path)).WithHint("use an absolute path without . and .., such as /reports")
	}
	r.Workspaces = append(r.Workspaces, w)
	return nil
}

func badScope(s string) error {
	return Errorf(InvalidArgument, "unknown scope %q", clip(s)).
		WithHint("use admin, read-only, computer:NAME, user:NAME, workspace:NAME[:read][:/PATH], port:COMPUTER:N or bucket:NAME[:read|write[:PREFIX]]")
}

// LinuxUser reports whether s is a valid name or number of a Linux user.
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

// Narrow reports whether the rights cover only listed objects, not the whole tenant.
func (r Rights) Narrow() bool {
	return len(r.Computers)+len(r.Workspaces)+len(r.Ports)+len(r.Buckets) > 0
}

// All reports whether the rights cover everything in the tenant.
func (r Rights) All() bool { return !r.ReadOnly && !r.Narrow() && len(r.Users) == 0 }

// Scopes returns r as scopes.
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
	for _, b := range r.Buckets {
		s, mode := "bucket:"+b.Bucket, ":write"
		if b.ReadOnly {
			mode = ":read"
		}
		if b.ReadOnly || b.Prefix != "" {
			s += mode
		}
		if b.Prefix != "" {
			s += ":" + b.Prefix
		}
		all = append(all, Scope(s))
	}
	return all
}

// User reports whether the Linux user is allowed; "" is agent.
func (r Rights) User(name string) bool {
	if name == "" {
		name = "agent"
	}
	return len(r.Users) == 0 || slices.Contains(r.Users, name)
}

// Computer reports whether a whole computer is covered.
func (r Rights) Computer(id ComputerID) bool { return !r.Narrow() || slices.Contains(r.Computers, id) }

// Port reports whether a port of a computer is covered.
func (r Rights) Port(id ComputerID, port int) bool {
	return r.Computer(id) || port > 0 && slices.Contains(r.Ports, PortScope{id, port})
}

// Dir returns the directory of the scope that covers a path of a workspace, for reading or for a change; "/" is the
// whole workspace.
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

// Bucket reports whether all artifacts of a bucket whose names begin with prefix are covered, for reading or for a change.
func (r Rights) Bucket(name, prefix string, change bool) bool {
	return !r.Narrow() || slices.ContainsFunc(r.Buckets, func(b BucketScope) bool {
		return b.Bucket == name && strings.HasPrefix(prefix, b.Prefix) && !(change && b.ReadOnly)
	})
}

// Within reports whether r gives no right that of lacks, so that a token with rights of may create one with r.
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
	for _, b := range r.Buckets {
		if !of.Bucket(b.Bucket, b.Prefix, !b.ReadOnly && !r.ReadOnly) {
			return false
		}
	}
	return true
}
