package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/machine"
)

// overlay is a disk that the guest shall write to instead of the one it has.
// QEMU has it open already.
type overlay struct {
	*guest
	path   string
	node   string // QEMU's name for it
	under  string // and for the disk that it will lie on
	frozen string // which is this
}

// drive is the guest's root disk as QEMU has it, the zero value without one.
// Source: BlockInfo in qapi/block-core.json of QEMU 7.2.
type drive struct {
	Node  string `json:"node-name"`
	File  string `json:"file"`
	Image struct {
		Size    int64 `json:"virtual-size"` // bytes
		Backing struct {
			Size int64 `json:"virtual-size"`
		} `json:"backing-image"`
	} `json:"image"`
}

// root asks for the guest's root disk.
func (g *guest) root(ctx context.Context) (drive, error) {
	var drives []struct {
		Inserted *drive `json:"inserted"`
	}
	if err := g.monitor.do(ctx, "query-block", nil, &drives); err != nil {
		return drive{}, err
	}
	for _, d := range drives {
		if d.Inserted != nil {
			return *d.Inserted, nil
		}
	}
	return drive{}, nil
}

// isIts refuses a disk that QEMU, which a guest may have taken over, says instead of the machine's.
func (g *guest) isIts(disk drive) error {
	if disk.File == g.Disk() {
		return nil
	}
	return holt.Errorf(holt.Corrupt, "QEMU says that the machine writes to %q, but its disk is %s", clip(disk.File), g.Disk())
}

// addOverlay makes an overlay on the disk that the guest has, and opens it.
func (g *guest) addOverlay(ctx context.Context, path string) (*overlay, error) {
	disk, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.isIts(disk); err != nil {
		return nil, err
	}
	if err := g.engine.createOverlay(ctx, path, disk.File, disk.Image.Size); err != nil {
		return nil, err
	}
	if _, err := g.engine.beneath(ctx, path); err != nil {
		os.Remove(path)
		return nil, err
	}
	o := &overlay{guest: g, path: path, under: disk.Node, frozen: disk.File}
	if err = g.show(path); err == nil {
		o.node, err = g.newNode(ctx)
	}
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	for _, options := range []map[string]any{
		fileNode(fileOf(o.node), path),
		// It comes to lie on the other when it is inserted.
		with(diskNode(o.node), "backing", nil),
	} {
		if err := g.monitor.do(ctx, "blockdev-add", options, nil); err != nil {
			return nil, errors.Join(err, o.undo(context.WithoutCancel(ctx)))
		}
	}
	return o, nil
}

// createOverlay makes an overlay of size bytes on a disk that a guest writes to.
// It is whole and durable when there is something at path.
func (e *Engine) createOverlay(ctx context.Context, path, under string, size int64) error {
	if _, err := os.Lstat(path); err == nil {
		return holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	making := path + makingSuffix
	// -u: what is under it is not looked at, since QEMU has it open for writing.
	out, err := exec.CommandContext(ctx, e.img, "create", "-q", "-u", "-f", "qcow2",
		"-F", "qcow2", "-b", under, "--", making, strconv.FormatInt(size, 10)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("create overlay: %w: %s", err, clip(strings.TrimSpace(string(out))))
		if strings.Contains(string(out), unix.ENOSPC.Error()) {
			err = fullDisk(filepath.Dir(path), 0)
		}
	}
	if err == nil {
		err = machine.Sync(making)
	}
	if err == nil {
		err = os.Rename(making, path)
	}
	if err == nil {
		err = machine.Sync(filepath.Dir(path))
	}
	if err != nil {
		os.Remove(making)
		os.Remove(path)
	}
	return err
}

// makingSuffix is added to the path of an overlay that is being made.
const makingSuffix = ".new"

// newNode is a name for a disk that is to be opened.
func (g *guest) newNode(ctx context.Context) (node string, err error) {
	names, err := g.nodeNames(ctx)
	if err != nil {
		return "", err
	}
	for n := 1; node == "" || names[node] || names[fileOf(node)]; n++ {
		node = fmt.Sprint(overlayPrefix, n)
	}
	return node, nil
}

// nodeNames are the names of what QEMU has open.
func (g *guest) nodeNames(ctx context.Context) (map[string]bool, error) {
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := g.monitor.do(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
	}
	return names, nil
}

// insert lets the guest write to the overlay. QEMU writes out all that belongs to the
// disk beneath and opens that for reading only.
func (o *overlay) insert(ctx context.Context) error {
	return o.monitor.do(ctx, "blockdev-snapshot", map[string]any{"node": o.under, "overlay": o.node}, nil)
}

// undo takes the overlay away: what was written to it since it was inserted, if it
// was, comes to lie where the guest wrote before. An error leaves it in its place.
func (o *overlay) undo(ctx context.Context) error {
	disk, err := o.root(ctx)
	if err == nil && disk.Node == o.node {
		err = o.commit(ctx)
	}
	if err != nil && o.isOver(err) && o.Disk() != o.path {
		return os.Remove(o.path) // nothing was written to it
	}
	if err != nil {
		return err
	}
	for _, node := range []string{o.node, fileOf(o.node)} {
		o.monitor.do(ctx, "blockdev-del", map[string]string{"node-name": node}, nil) // or it was never added
	}
	return os.Remove(o.path)
}

// commit writes what the overlay holds to the disk beneath, and lets the guest write
// there again. The guest may run meanwhile.
func (o *overlay) commit(ctx context.Context) error {
	id := "commit-" + o.node
	err := o.monitor.do(ctx, "block-commit", map[string]string{"job-id": id, "device": o.node, "base-node": o.under}, nil)
	told := false
	for status := "created"; err == nil && status != ""; {
		if status, err = o.job(ctx, id); err != nil {
			break
		}
		if status == "ready" && !told { // all but what is written now lies beneath
			told = true
			err = o.monitor.do(ctx, "job-complete", map[string]string{"id": id}, nil)
		} else if status != "" {
			err = wait(ctx, proceedPoll)
		}
	}
	disk, asked := o.root(ctx)
	if asked == nil {
		writes := o.path
		if disk.Node == o.under {
			writes = o.frozen
		}
		o.setDisk(writes)
	}
	if err == nil && asked == nil && disk.Node != o.under {
		err = holt.Errorf(holt.Internal, "QEMU did not write an overlay back")
	}
	return errors.Join(err, asked)
}

// job is what a job of QEMU's is in; "" when it has ended.
func (g *guest) job(ctx context.Context, id string) (status string, err error) {
	var jobs []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := g.monitor.do(ctx, "query-jobs", nil, &jobs); err != nil {
		return "", err
	}
	for _, job := range jobs {
		if job.ID == id {
			return job.Status, nil
		}
	}
	return "", nil
}

// closeUnused closes disks that nothing lies over any more, and overlays that a
// daemon has opened, and died before it inserted them.
func (g *guest) closeUnused(ctx context.Context) error {
	names, err := g.nodeNames(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name != rootNode && !strings.HasPrefix(name, overlayPrefix) })
	for left := -1; left != len(names); { // a disk goes before its file and what it lies over
		left = len(names)
		for name := range names {
			err := g.monitor.do(ctx, "blockdev-del", map[string]string{"node-name": name}, nil) // refused for those in use
			if err == nil {
				delete(names, name)
			}
		}
	}
	return nil
}

// rootNode is QEMU's name for the disk that a machine is started with, and
// overlayPrefix begins those for overlays.
const rootNode, overlayPrefix = "root", "root-"

// fileOf names the file that a disk lies in.
func fileOf(node string) string { return node + "-file" }

// fileNode and diskNode are the two halves of a disk: its file, and the qcow2 in it.
func fileNode(name, path string) map[string]any {
	return map[string]any{"node-name": name, "driver": "file", "filename": path, "discard": "unmap"}
}

func diskNode(name string) map[string]any {
	return map[string]any{"node-name": name, "driver": "qcow2", "file": fileOf(name), "discard": "unmap", "detect-zeroes": "unmap"}
}

func with(options map[string]any, key string, value any) map[string]any {
	options[key] = value
	return options
}
