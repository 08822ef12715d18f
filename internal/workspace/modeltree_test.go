package workspace

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"syscall"
)

// model is a plain tree in memory that does what POSIX and the contracts of
// Tree say, one call after the other, and nothing about journals or caches.
type model struct {
	nodes     map[Ino]*modelNode
	next      Ino
	nextEpoch Epoch
	epochs    map[Epoch]modelEpoch
	lookups   map[Ino]uint64

	checkpoints []modelCheckpoint
	nextCheck   CheckpointID
	head        CheckpointID
}

type modelEpoch struct {
	id    byte
	kind  MountKind
	since Ino // of what was made before, not every lookup was counted
}

// modelNode is one inode. content is never changed in place: clones share it.
type modelNode struct {
	Attr
	target  string
	content []byte
	xattrs  map[string]string
	parent  Ino
	cookie  uint64
	entries map[string]modelEntry
}

type modelEntry struct {
	ino    Ino
	cookie uint64
}

func newModel(now int64) *model {
	m := &model{nodes: map[Ino]*modelNode{}, next: Root, nextEpoch: 1, epochs: map[Epoch]modelEpoch{}, lookups: map[Ino]uint64{}, nextCheck: 1}
	m.add(&modelNode{Attr: Attr{Mode: syscall.S_IFDIR | 0o755}}, now)
	m.nodes[Root].parent = Root
	return m
}

func (m *model) clone() *model {
	c := &model{nodes: make(map[Ino]*modelNode, len(m.nodes)), next: m.next, nextEpoch: m.nextEpoch,
		epochs: maps.Clone(m.epochs), lookups: maps.Clone(m.lookups), checkpoints: slices.Clone(m.checkpoints), nextCheck: m.nextCheck, head: m.head}
	for ino, n := range m.nodes {
		d := *n
		d.xattrs, d.entries = maps.Clone(n.xattrs), maps.Clone(n.entries)
		c.nodes[ino] = &d
	}
	return c
}

func (m *model) add(n *modelNode, now int64) *modelNode {
	n.Ino, n.Nlink = m.next, 1
	n.Atime, n.Mtime, n.Ctime, n.Btime = now, now, now, now
	n.xattrs = map[string]string{}
	if n.IsDir() {
		n.Nlink, n.entries = 2, map[string]modelEntry{}
	}
	m.nodes[m.next] = n
	m.next++
	return n
}

// dump describes the state as modelRun.dump does a workspace's.
func (m *model) dump(content func([]byte) uint64) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "next %d epoch %d of %v, from checkpoint %d\n", m.next, m.nextEpoch, m.epochs, m.head)
	for _, c := range m.checkpoints {
		fmt.Fprintf(&b, "checkpoint %d %q from %d, mounts %v\n%s", c.id, c.name, c.parent, c.all != nil, (&model{nodes: c.nodes}).dumpNodes(content))
	}
	b.WriteString(m.dumpNodes(content))
	return b.String()
}

func (m *model) dumpNodes(content func([]byte) uint64) string {
	var b bytes.Buffer
	for _, ino := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[ino]
		fmt.Fprintf(&b, "%+v", n.Attr)
		for _, k := range slices.Sorted(maps.Keys(n.xattrs)) {
			fmt.Fprintf(&b, " %s=%q", k, n.xattrs[k])
		}
		fmt.Fprintf(&b, " %q %x", n.target, content(n.content))
		for _, e := range n.sorted() {
			fmt.Fprintf(&b, " %q:%d@%d", e, n.entries[e].ino, n.entries[e].cookie)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (n *modelNode) sorted() []string {
	return slices.SortedFunc(maps.Keys(n.entries), func(a, b string) int { return cmp.Compare(n.entries[a].cookie, n.entries[b].cookie) })
}

// restart is what a new process knows: no lookup counts, no host mounts.
func (m *model) restart() {
	clear(m.lookups)
	for number, e := range m.epochs {
		e.since = m.next
		m.epochs[number] = e
	}
	for number, e := range m.epochs {
		if e.kind == HostMount {
			m.endEpoch(number)
		}
	}
}

func (m *model) endEpoch(e Epoch) {
	delete(m.epochs, e)
	if len(m.epochs) > 0 {
		return
	}
	for ino, n := range m.nodes {
		if n.Nlink == 0 {
			delete(m.nodes, ino)
		}
	}
	clear(m.lookups)
}

func (m *model) certain(ino Ino) bool {
	for _, e := range m.epochs {
		if ino < e.since {
			return false
		}
	}
	return true
}

func (m *model) hold(c Caller, ino Ino) {
	if c.Epoch != 0 && ino != Root {
		m.lookups[ino]++
	}
}

func (m *model) forget(ino Ino, n uint64) {
	counted := m.lookups[ino]
	m.lookups[ino] = counted - min(n, counted)
	if x := m.nodes[ino]; x != nil && x.Nlink == 0 && (n > counted || n == counted && m.certain(ino)) {
		delete(m.nodes, ino)
	}
}

func (m *model) dir(ino Ino) (*modelNode, error) {
	n := m.nodes[ino]
	if n == nil {
		return nil, syscall.ENOENT
	}
	if n.entries == nil {
		return nil, syscall.ENOTDIR
	}
	return n, nil
}

func (m *model) file(ino Ino) (*modelNode, error) {
	n := m.nodes[ino]
	switch {
	case n == nil:
		return nil, syscall.ENOENT
	case n.IsDir():
		return nil, syscall.EISDIR
	case !n.IsRegular():
		return nil, syscall.EINVAL
	}
	return n, nil
}

// at returns what a directory holds under a name.
func (m *model) at(parent Ino, name string) (d, n *modelNode, err error) {
	if err := validName(name); err != nil {
		return nil, nil, err
	}
	if d, err = m.dir(parent); err != nil {
		return nil, nil, err
	}
	if e, ok := d.entries[name]; ok {
		return d, m.nodes[e.ino], nil
	}
	return d, nil, nil
}

// room is at for a name that is to be made.
func (m *model) room(parent Ino, name string) (*modelNode, error) {
	d, n, err := m.at(parent, name)
	switch {
	case err != nil:
		return nil, err
	case d.Nlink == 0:
		return nil, syscall.ENOENT
	case n != nil:
		return nil, syscall.EEXIST
	}
	return d, nil
}

func (d *modelNode) enter(name string, ino Ino, now int64) {
	d.cookie++
	d.entries[name] = modelEntry{ino, d.cookie}
	d.stamp(now)
}

func (d *modelNode) erase(name string, now int64) {
	delete(d.entries, name)
	d.stamp(now)
}

// stamp is for a change of content.
func (n *modelNode) stamp(now int64) {
	n.Mtime, n.Ctime = now, now
	if n.entries != nil {
		n.Size = int64(len(n.entries))
	}
}

// unlinked takes a name in d from n.
func (m *model) unlinked(d, n *modelNode, now int64) {
	n.Ctime = now
	n.Nlink--
	if n.IsDir() {
		n.Nlink = 0
		d.Nlink--
	}
	if n.Nlink == 0 && (len(m.epochs) == 0 || m.certain(n.Ino) && m.lookups[n.Ino] == 0) {
		delete(m.nodes, n.Ino)
	}
}

func (m *model) make(k *call) (Ino, error) {
	d, err := m.room(k.ino, k.name)
	if err != nil {
		return 0, err
	}
	n := &modelNode{Attr: Attr{Mode: k.mode, UID: k.c.UID, GID: k.c.GID, Rdev: k.flags}, target: k.name2}
	n.Size = int64(len(n.target))
	if d.Mode&syscall.S_ISGID != 0 {
		n.GID = d.GID
		if n.IsDir() {
			n.Mode |= syscall.S_ISGID
		}
	}
	m.add(n, k.now)
	n.parent = d.Ino
	if n.IsDir() {
		d.Nlink++
	}
	d.enter(k.name, n.Ino, k.now)
	m.hold(k.c, n.Ino)
	return n.Ino, nil
}

func (m *model) tmpfile(k *call) (Ino, error) {
	if k.c.Epoch == 0 {
		return 0, syscall.EOPNOTSUPP
	}
	d, err := m.dir(k.ino)
	if err != nil {
		return 0, err
	}
	if d.Nlink == 0 {
		return 0, syscall.ENOENT
	}
	n := &modelNode{Attr: Attr{Mode: syscall.S_IFREG | k.mode&07777, UID: k.c.UID, GID: k.c.GID}}
	if d.Mode&syscall.S_ISGID != 0 {
		n.GID = d.GID
	}
	m.add(n, k.now).Nlink = 0
	m.hold(k.c, n.Ino)
	return n.Ino, nil
}

func (m *model) link(k *call) (Ino, error) {
	if err := validName(k.name); err != nil {
		return 0, err
	}
	n := m.nodes[k.ino2]
	switch {
	case n == nil:
		return 0, syscall.ENOENT
	case n.IsDir():
		return 0, syscall.EPERM
	}
	d, err := m.room(k.ino, k.name)
	if err != nil {
		return 0, err
	}
	n.Nlink++
	n.Ctime = k.now
	d.enter(k.name, n.Ino, k.now)
	m.hold(k.c, n.Ino)
	return n.Ino, nil
}

func (m *model) unlink(k *call, dir bool) error {
	d, n, err := m.at(k.ino, k.name)
	switch {
	case dir && k.name == ".":
		return syscall.EINVAL
	case dir && k.name == "..":
		return syscall.ENOTEMPTY
	case err != nil:
		return err
	case n == nil:
		return syscall.ENOENT
	case dir && !n.IsDir():
		return syscall.ENOTDIR
	case !dir && n.IsDir():
		return syscall.EISDIR
	case dir && len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	d.erase(k.name, k.now)
	m.unlinked(d, n, k.now)
	return nil
}

// below tells whether d is a or lies in it.
func (m *model) below(d, a *modelNode) bool {
	for d != a && d.Ino != Root {
		d = m.nodes[d.parent]
	}
	return d == a
}

func (m *model) rename(k *call) error {
	exchange := k.flags == RenameExchange
	if err := cmp.Or(validName(k.name), validName(k.name2)); err != nil {
		return err
	}
	from, err := m.dir(k.ino)
	if err != nil {
		return err
	}
	to, err := m.dir(k.ino2)
	if err != nil {
		return err
	}
	e, ok := from.entries[k.name]
	if !ok || to.Nlink == 0 {
		return syscall.ENOENT
	}
	n, victim := m.nodes[e.ino], m.nodes[to.entries[k.name2].ino]
	switch {
	case exchange && victim == nil:
		return syscall.ENOENT
	case k.flags == RenameNoReplace && victim != nil:
		return syscall.EEXIST
	case n.IsDir() && m.below(to, n):
		return syscall.EINVAL
	case victim == n:
		return nil
	case exchange && victim.IsDir() && m.below(from, victim):
		return syscall.EINVAL
	case exchange:
		m.exchange(k, from, to, n, victim)
		return nil
	case victim != nil && n.IsDir() && !victim.IsDir():
		return syscall.ENOTDIR
	case victim != nil && !n.IsDir() && victim.IsDir():
		return syscall.EISDIR
	case victim != nil && len(victim.entries) > 0:
		return syscall.ENOTEMPTY
	}
	if victim != nil {
		to.erase(k.name2, k.now)
		m.unlinked(to, victim, k.now)
	}
	from.erase(k.name, k.now)
	to.enter(k.name2, n.Ino, k.now)
	n.Ctime = k.now
	n.moved(from, to)
	return nil
}

func (m *model) exchange(k *call, from, to, a, b *modelNode) {
	from.cookie++
	from.entries[k.name] = modelEntry{b.Ino, from.cookie}
	to.cookie++
	to.entries[k.name2] = modelEntry{a.Ino, to.cookie}
	a.Ctime, b.Ctime = k.now, k.now
	a.moved(from, to)
	b.moved(to, from)
	from.stamp(k.now)
	to.stamp(k.now)
}

func (n *modelNode) moved(from, to *modelNode) {
	if n.IsDir() {
		from.Nlink--
		to.Nlink++
	}
	n.parent = to.Ino
}

// killPriv clears set-id bits of a file.
func (n *modelNode) killPriv(c Caller, yes bool) {
	if !yes || n.IsDir() {
		return
	}
	n.Mode &^= syscall.S_ISUID
	if n.Mode&syscall.S_IXGRP != 0 || c.UID != 0 && c.GID != n.GID {
		n.Mode &^= syscall.S_ISGID
	}
}

func (m *model) setAttr(k *call) (Ino, error) {
	s := k.set
	n := m.nodes[k.ino]
	if n == nil {
		return 0, syscall.ENOENT
	}
	if s.Mask&SetSize != 0 {
		if _, err := m.file(k.ino); err != nil {
			return 0, err
		}
		n.content, n.Size = resize(n.content, s.Size), s.Size
		n.Mtime = k.now
	}
	n.killPriv(k.c, s.Mask&SetMode == 0 && (s.Mask&(SetUID|SetGID) != 0 || s.Mask&SetSize != 0 && k.c.UID != 0))
	if s.Mask&SetMode != 0 {
		n.Mode = n.Mode&syscall.S_IFMT | s.Mode&07777
	}
	if s.Mask&SetUID != 0 {
		n.UID = s.UID
	}
	if s.Mask&SetGID != 0 {
		n.GID = s.GID
	}
	if s.Mask&SetAtime != 0 {
		n.Atime = s.Atime
	}
	if s.Mask&SetMtime != 0 {
		n.Mtime = s.Mtime
	}
	if s.Mask&SetMtimeNow != 0 {
		n.Mtime = k.now
	}
	n.Ctime = k.now
	return n.Ino, nil
}
