package workspace

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"

	"holt"
	"holt/internal/store/parcel"
)

// ImportSpec says how a parcel comes into a workspace.
type ImportSpec struct {
	Path    string // the directory that becomes the parcel's top; made if it is not there
	Writer  Writer // whom the files are attributed to
	UID     uint32 // who owns them, unless Owner
	GID     uint32
	Owner   bool // they belong to the numbers that the parcel has
	Devices bool // device nodes too
	SetID   bool // keep set-user-id and set-group-id bits

	// Changed is told what a kernel that has the workspace mounted may no longer
	// believe: the entry name of a directory, or with name "" an inode itself.
	Changed func(ino Ino, name string)
}

// Import puts a parcel into the workspace: an existing file keeps its attributes and, unless the spec names Owner, its
// owner. It is overwritten and keeps its inode, unless it has other names: these keep the file as it is, and a new one takes the
// name's place. Directories are joined, nothing else is touched. When it returns without an
// error everything survives power loss. On an error the report says what is
// there: all of it complete but the file that came last.
//
// It takes no lock over the whole: who reads meanwhile sees files as they come.
//
// Errors: InvalidArgument (a path, a stream that is no parcel), Conflict (a
// directory where a file should come, or the other way), OutOfSpace.
func (w *Workspace) Import(ctx context.Context, r *parcel.Reader, spec ImportSpec) (holt.TransferReport, error) {
	m := importer{ctx: ctx, t: w.tree, r: r, spec: spec, linked: map[uint64]Ino{},
		caller: Caller{UID: spec.UID, GID: spec.GID, Writer: spec.Writer}}
	err := m.run()
	m.report.Entries, m.report.Bytes = r.Got.Entries, r.Got.Bytes
	if err == nil {
		err = w.tree.Sync()
	}
	if errors.Is(err, parcel.ErrFormat) {
		err = holt.Errorf(holt.InvalidArgument, "import: %w", err).WithHint("send it again: files that already arrived are replaced")
	}
	return m.report, fileError("import", m.where(), err)
}

// importer is the state of one import.
type importer struct {
	ctx    context.Context
	t      *Tree
	r      *parcel.Reader
	spec   ImportSpec
	caller Caller
	dirs   []importDir
	file   Ino            // being written; 0: none
	entry  parcel.Entry   // of it
	grown  int64          // where its bytes end so far
	old    Attr           // what was there before under its name: this file, or one that it replaces
	linked map[uint64]Ino // files with several names
	report holt.TransferReport
}

// importDir is a directory that is open.
type importDir struct {
	ino   Ino
	entry parcel.Entry
	made  bool // by this import: it holds only what came
}

func (m *importer) run() error {
	for {
		event, err := m.r.Next()
		if err == nil {
			err = m.ctx.Err()
		}
		if err == nil && event != parcel.Bytes {
			err = m.endFile()
		}
		if err != nil {
			return err
		}
		switch event {
		case parcel.Entered:
			err = m.enter()
		case parcel.Bytes:
			m.grown = m.r.Off + int64(len(m.r.Data))
			_, err = m.t.Write(m.caller, m.file, m.r.Off, m.r.Data)
		case parcel.Up:
			err = m.up()
		case parcel.End:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// where is the path that the import is at.
func (m *importer) where() string {
	p := m.spec.Path
	for _, d := range m.dirs[min(1, len(m.dirs)):] {
		p = path.Join(p, d.entry.Name)
	}
	if e := m.r.Entry; e.Kind != parcel.Dir && e.Name != "" {
		p = path.Join(p, e.Name)
	}
	return p
}

func (m *importer) at() *importDir { return &m.dirs[len(m.dirs)-1] }

func (m *importer) enter() error {
	e := m.r.Entry
	if !m.spec.SetID && e.Kind != parcel.Dir {
		e.Mode &^= syscall.S_ISUID | syscall.S_ISGID
	}
	if m.spec.Owner {
		m.caller.UID, m.caller.GID = e.UID, e.GID
	}
	if len(m.dirs) == 0 {
		return m.top(e)
	}
	if e.Kind == parcel.Dir {
		return m.dir(e)
	}
	if e.Kind.Device() && !m.spec.Devices {
		if m.report.Devices++; len(m.report.LeftOut) < 100 {
			m.report.LeftOut = append(m.report.LeftOut, strings.ToValidUTF8(m.where(), "\uFFFD"))
		}
		return nil
	}
	old := m.existing(e)
	if old.Nlink == 1 {
		return m.overwrite(old, e)
	}
	// The other names of a file may be those of a backup, and keep it.
	if err := m.vacate(e.Name); err != nil {
		return err
	}
	return m.make(e, old)
}

// existing returns the file that an entry of a file comes upon, or nothing.
func (m *importer) existing(e parcel.Entry) Attr {
	in := m.at()
	if e.Kind != parcel.File || in.made {
		return Attr{}
	}
	a, err := m.t.Lookup(Caller{}, in.ino, e.Name)
	if err != nil || !a.IsRegular() {
		return Attr{}
	}
	return a
}

// overwrite begins to write an entry into a file that is there.
func (m *importer) overwrite(old Attr, e parcel.Entry) error {
	if _, err := m.t.SetAttr(m.caller, old.Ino, SetAttrs{Mask: SetSize}); err != nil {
		return err
	}
	m.begin(old.Ino, e, old)
	return m.xattrs(old.Ino, e)
}

// begin has the bytes that come written to a file.
func (m *importer) begin(ino Ino, e parcel.Entry, old Attr) {
	m.file, m.entry, m.grown, m.old = ino, e, 0, old
	if e.ID != 0 {
		m.linked[e.ID] = ino
	}
}

// top finds or makes the directory that the import goes into. What is there
// keeps its mode.
func (m *importer) top(e parcel.Entry) error {
	names := pathNames(m.spec.Path)
	at := []Ino{Root}
	for _, name := range names {
		next, err := resolve(m.t, at, []string{name}, true)
		if err == syscall.ENOENT {
			var a Attr
			in := at[len(at)-1]
			if a, err = m.t.Mkdir(m.caller, in, name, 0o755); err == nil {
				m.changed(in, name)
				next = append(at, a.Ino)
			}
		}
		if err != nil {
			return err
		}
		at = next
	}
	a, err := m.t.GetAttr(at[len(at)-1])
	if err == nil && !a.IsDir() {
		err = syscall.ENOTDIR
	}
	m.dirs = append(m.dirs, importDir{ino: a.Ino, entry: e})
	return err
}

func (m *importer) dir(e parcel.Entry) error {
	in := m.at()
	if !in.made {
		a, err := m.t.Lookup(Caller{}, in.ino, e.Name)
		if err == nil && !a.IsDir() {
			return holt.Errorf(holt.Conflict, "import: %s is not a directory", m.where()).WithHint("remove it first")
		}
		if err == nil {
			m.dirs = append(m.dirs, importDir{ino: a.Ino, entry: e})
			return nil
		}
		if err != syscall.ENOENT {
			return err
		}
	}
	a, err := m.t.Mkdir(m.caller, in.ino, e.Name, e.Mode)
	if err == nil {
		m.dirs = append(m.dirs, importDir{ino: a.Ino, entry: e, made: true})
	}
	return err
}

// vacate removes what has a name in the directory that is open.
func (m *importer) vacate(name string) error {
	in := m.at()
	if in.made {
		return nil
	}
	err := m.t.Unlink(m.caller, in.ino, name)
	if err == syscall.EISDIR {
		return holt.Errorf(holt.Conflict, "import: %s is a directory", m.where()).WithHint("remove it first")
	}
	if err == syscall.ENOENT {
		return nil
	}
	return err
}

// make makes what is not a directory; a file keeps the owner and attributes of the one that it replaces.
func (m *importer) make(e parcel.Entry, old Attr) (err error) {
	var a Attr
	in := m.at()
	switch e.Kind {
	case parcel.Link:
		ino, ok := m.linked[e.ID]
		if !ok {
			return holt.Errorf(holt.InvalidArgument, "import: %s links to a file that is not in the import", m.where())
		}
		_, err = m.t.Link(m.caller, ino, in.ino, e.Name)
		m.changedBelow(e.Name)
		return err
	case parcel.File:
		if a, err = m.t.Create(m.caller, in.ino, e.Name, e.Mode); err == nil {
			m.begin(a.Ino, e, old)
			err = m.inherit(a.Ino)
		}
	case parcel.Symlink:
		a, err = m.t.Symlink(m.caller, in.ino, e.Name, e.Target)
	default:
		a, err = m.t.Mknod(m.caller, in.ino, e.Name, e.Kind.TypeBits()|e.Mode, e.Rdev)
	}
	if err != nil {
		return err
	}
	m.changedBelow(e.Name)
	if err := m.xattrs(a.Ino, e); err != nil || e.Kind == parcel.File {
		return err
	}
	return m.finish(a.Ino, e)
}

// inherit gives a file the attributes of the one that it replaces.
func (m *importer) inherit(ino Ino) error {
	if m.old.Ino == 0 {
		return nil
	}
	names, err := m.t.ListXattr(m.old.Ino)
	for _, name := range names {
		value, err := m.t.GetXattr(m.old.Ino, name)
		if err != nil {
			return err
		}
		if err := m.t.SetXattr(m.caller, ino, name, value, 0); err != nil {
			return err
		}
	}
	return err
}

// xattrs sets the attributes that came, and removes the ACLs that did not:
// those that were inherited here.
func (m *importer) xattrs(ino Ino, e parcel.Entry) error {
	for _, name := range e.WithoutACL() {
		if _, err := m.t.GetXattr(ino, name); err == syscall.ENODATA {
			continue
		}
		if err := m.t.RemoveXattr(m.caller, ino, name); err != nil {
			return err
		}
	}
	for _, x := range e.Xattrs {
		if err := m.t.SetXattr(m.caller, ino, x.Name, x.Value, 0); err != nil {
			return err
		}
	}
	return nil
}

// finish sets what making and writing could not, or have changed.
func (m *importer) finish(ino Ino, e parcel.Entry) error {
	set := SetAttrs{Mask: SetMtime | SetAtime | SetUID | SetGID, Mtime: e.Mtime, Atime: e.Atime, Mode: e.Mode, UID: m.spec.UID, GID: m.spec.GID, Size: e.Size}
	switch {
	case m.spec.Owner:
		set.UID, set.GID = e.UID, e.GID
	case m.old.Ino != 0:
		set.UID, set.GID = m.old.UID, m.old.GID
	}
	if e.Kind != parcel.Symlink {
		set.Mask |= SetMode
	}
	if e.Kind == parcel.File && m.grown != e.Size { // it ends with a hole
		set.Mask |= SetSize
	}
	_, err := m.t.SetAttr(m.caller, ino, set)
	return err
}

func (m *importer) endFile() error {
	if m.file == 0 {
		return nil
	}
	ino := m.file
	m.file = 0
	err := m.finish(ino, m.entry)
	if m.old.Ino != 0 {
		m.changed(ino, "")
	}
	m.old = Attr{}
	return err
}

func (m *importer) up() error {
	d := *m.at()
	m.dirs = m.dirs[:len(m.dirs)-1]
	if len(m.dirs) == 0 {
		m.changed(d.ino, "")
		return nil
	}
	if err := m.xattrs(d.ino, d.entry); err != nil {
		return err
	}
	if err := m.finish(d.ino, d.entry); err != nil {
		return err
	}
	m.changedBelow(d.entry.Name)
	if !d.made {
		m.changed(d.ino, "")
	}
	return nil
}

func (m *importer) changed(ino Ino, name string) {
	if m.spec.Changed != nil {
		m.spec.Changed(ino, name)
	}
}

// changedBelow tells of a name in the directory that is open. Of what lies in
// a directory made by this import needs no notification: its own entry, dropped
// when it is complete, takes along all that a kernel knows below it.
func (m *importer) changedBelow(name string) {
	if in := m.at(); !in.made {
		m.changed(in.ino, name)
	}
}
