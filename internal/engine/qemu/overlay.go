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

// overlay is a disk that will replace the guest's current one. QEMU has it open already.
type overlay struct {
	*guest
	path   string
	node   string // QEMU's node name for it
	under  string // node name of the disk below it
	frozen string // path of the disk below it
}

// drive is QEMU's view of the guest's root disk; zero without one. Source:
// BlockInfo in qapi/block-core.json of QEMU 7.2.
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

// root returns the guest's root disk.
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

// checkOwnDisk refuses a disk that is not the machine's: a compromised QEMU may name any.
func (g *guest) checkOwnDisk(disk drive) error {
	if disk.File == g.Disk() {
		return nil
	}
	return holt.Errorf(holt.Corrupt, "QEMU reports the disk %q, but the machine's disk is %s", clip(disk.File), g.Disk())
}

// addOverlay creates an overlay on the guest's current disk, and opens it.
func (g *guest) addOverlay(ctx context.Context, path string) (*overlay, error) {
	disk, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.checkOwnDisk(disk); err != nil {
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
		// Its base is set when it is inserted.
		with(diskNode(o.node), "backing", nil),
	} {
		if err := g.monitor.do(ctx, "blockdev-add", options, nil); err != nil {
			return nil, errors.Join(err, o.undo(context.WithoutCancel(ctx)))
		}
	}
	return o, nil
}

// createOverlay creates an overlay of size bytes on a disk in use by a guest.
// If path exists it is complete and durable.
func (e *Engine) createOverlay(ctx context.Context, path, under string, size int64) error {
	if _, err := os.Lstat(path); err == nil {
		return holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	making := path + makingSuffix
	// -u: do not open the base, since QEMU has it open for writing.
	out, err := exec.CommandContext(ctx, e.img, "create", "-q", "-u", "-f", "qcow2",
		"-F", "qcow2", "-b", under, "--", making, strconv.FormatInt(size, 10)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("create overlay: %w: %s", err, clip(strings.TrimSpace(string(out))))
		if strings.Contains(string(out), unix.ENOSPC.Error()) {
			err = machine.FullDisk(filepath.Dir(path))
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

// makingSuffix is added to the path of an incomplete overlay.
const makingSuffix = ".new"

// newNode returns a node name for a new disk.
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

// nodeNames returns the names of all nodes that QEMU has open.
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

// insert makes the overlay the guest's disk. QEMU flushes the disk below and reopens it read-only.
func (o *overlay) insert(ctx context.Context) error {
	return o.monitor.do(ctx, "blockdev-snapshot", map[string]any{"node": o.under, "overlay": o.node}, nil)
}

// undo removes the overlay. If it was inserted, undo first copies what was
// written to it into the disk below, which becomes the guest's disk again.
// After an error the overlay stays.
func (o *overlay) undo(ctx context.Context) error {
	disk, err := o.root(ctx)
	if err == nil && disk.Node == o.node {
		err = o.commit(ctx)
	}
	if err != nil && o.isOver(err) && o.Disk() != o.path {
		return os.Remove(o.path) // it is empty
	}
	if err != nil {
		return err
	}
	for _, node := range []string{o.node, fileOf(o.node)} {
		o.monitor.do(ctx, "blockdev-del", map[string]string{"node-name": node}, nil) // ignore an error: it may not have been added
	}
	return os.Remove(o.path)
}

// commit copies the overlay into the disk below and makes that the guest's disk
// again. The guest may run.
func (o *overlay) commit(ctx context.Context) error {
	id := "commit-" + o.node
	err := o.monitor.do(ctx, "block-commit", map[string]string{"job-id": id, "device": o.node, "base-node": o.under}, nil)
	told := false
	for status := "created"; err == nil && status != ""; {
		if status, err = o.job(ctx, id); err != nil {
			break
		}
		if status == "ready" && !told { // everything except current writes has been copied
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
		err = holt.Errorf(holt.Internal, "QEMU did not commit an overlay")
	}
	return errors.Join(err, asked)
}

// job returns the status of a job of QEMU; "" when it has ended.
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

// closeUnused closes disks that no disk uses as a base any more, and overlays
// that a daemon opened before it died without inserting them.
func (g *guest) closeUnused(ctx context.Context) error {
	names, err := g.nodeNames(ctx)
	if err != nil {
		return err
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return name != rootNode && !strings.HasPrefix(name, overlayPrefix) })
	for left := -1; left != len(names); { // a disk must be closed before its file and its base
		left = len(names)
		for name := range names {
			err := g.monitor.do(ctx, "blockdev-del", map[string]string{"node-name": name}, nil) // refused for nodes in use
			if err == nil {
				delete(names, name)
			}
		}
	}
	return nil
}

// rootNode is QEMU's node name of a machine's first disk, and overlayPrefix
// begins those of overlays.
const rootNode, overlayPrefix = "root", "root-"

// fileOf returns the name of the file node of a disk.
func fileOf(node string) string { return node + "-file" }

// fileNode and diskNode describe the two nodes of a disk: its file, and the qcow2 in it.
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
