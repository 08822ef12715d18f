package mount

import (
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt/internal/workspace"
)

// served reports whether an attribute is supported: of system.* only the POSIX ACLs are.
func served(name string) bool {
	return !strings.HasPrefix(name, "system.") || workspace.IsACL(name)
}

func (t *tree) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if !served(name) {
		return 0, fuse.ENOTSUP
	}
	value, err := t.ws.GetXattr(workspace.Ino(h.NodeId), name)
	if err != nil {
		return 0, t.status(err)
	}
	return fit(dest, string(value))
}

func (t *tree) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	names, err := t.ws.ListXattr(workspace.Ino(h.NodeId))
	if err != nil {
		return 0, t.status(err)
	}
	return fitNames(dest, names)
}

// fitNames is fit for a list of names.
func fitNames(dest []byte, names []string) (uint32, fuse.Status) {
	if len(names) == 0 {
		return 0, fuse.OK
	}
	return fit(dest, strings.Join(names, "\x00")+"\x00")
}

// fit copies value into dest, or returns its length if dest is too short.
func fit(dest []byte, value string) (uint32, fuse.Status) {
	if len(dest) < len(value) {
		return uint32(len(value)), fuse.ERANGE
	}
	return uint32(copy(dest, value)), fuse.OK
}

func (t *tree) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, value []byte) fuse.Status {
	switch {
	case t.readOnly:
		return fuse.EROFS
	case !served(name):
		return fuse.ENOTSUP
	}
	flags := in.Flags & (workspace.XattrCreate | workspace.XattrReplace)
	if t.longXattr && in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 {
		flags |= workspace.XattrKillSetGID
	}
	return t.status(t.ws.SetXattr(t.caller(&in.InHeader), workspace.Ino(in.NodeId), name, value, flags))
}

func (t *tree) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	switch {
	case t.readOnly:
		return fuse.EROFS
	case !served(name):
		return fuse.ENOTSUP
	}
	return t.status(t.ws.RemoveXattr(t.caller(h), workspace.Ino(h.NodeId), name))
}
