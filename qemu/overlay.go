package qemu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// overlay is a disk that the guest shall write to instead of the one it has.
// QEMU has it open already.
type overlay struct {
	*guest
	path  string
	node  string // QEMU's names for it and for its file
	file  string
	under string // for the disk that it will lie on
}

// drive is the guest's root disk as QEMU has it. Source: BlockInfo in
// qapi/block-core.json of QEMU 7.2.
type drive struct {
	Inserted *struct {
		Node  string `json:"node-name"`
		File  string `json:"file"`
		Image struct {
			Size int64 `json:"virtual-size"` // bytes
		} `json:"image"`
	} `json:"inserted"`
}

// root asks for the guest's root disk; one that is none has no file.
func (g *guest) root(ctx context.Context) (node, file string, size int64, err error) {
	var drives []drive
	if err := g.monitor.do(ctx, "query-block", nil, &drives); err != nil {
		return "", "", 0, err
	}
	for _, d := range drives {
		if d.Inserted != nil {
			return d.Inserted.Node, d.Inserted.File, d.Inserted.Image.Size, nil
		}
	}
	return "", "", 0, nil
}

// addOverlay makes an overlay on the disk that the guest has, and opens it.
func (g *guest) addOverlay(ctx context.Context, path string) (*overlay, error) {
	node, file, size, err := g.root(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, holt.Errorf(holt.AlreadyExists, "disk %s exists already", path)
	}
	// -u: it is not looked at, since QEMU is writing to it.
	out, err := exec.CommandContext(ctx, g.engine.img, "create", "-q", "-u", "-f", "qcow2",
		"-F", "qcow2", "-b", file, "--", path, strconv.FormatInt(size, 10)).CombinedOutput()
	if err != nil {
		os.Remove(path)
		if strings.Contains(string(out), unix.ENOSPC.Error()) {
			return nil, fullDisk(filepath.Dir(path), 0)
		}
		return nil, fmt.Errorf("create overlay: %w: %s", err, clip(strings.TrimSpace(string(out))))
	}
	names, err := g.nodeNames(ctx)
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	o := &overlay{guest: g, path: path, under: node}
	for n := 1; o.node == "" || names[o.node] || names[o.file]; n++ {
		o.node = fmt.Sprintf("root-%d", n)
		o.file = o.node + "-file"
	}
	for _, options := range []map[string]any{
		fileNode(o.file, path),
		// It comes to lie on the other when it is inserted.
		with(diskNode(o.node, o.file), "backing", nil),
	} {
		if err := g.monitor.do(ctx, "blockdev-add", options, nil); err != nil {
			o.remove(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	return o, nil
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

// remove closes and removes an overlay that was not inserted.
func (o *overlay) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.engine.wait)
	defer cancel()
	for _, node := range []string{o.node, o.file} {
		o.monitor.do(ctx, "blockdev-del", map[string]string{"node-name": node}, nil) // or it was never added
	}
	os.Remove(o.path)
}

// fileNode and diskNode are the two halves of a disk: its file, and the qcow2 in it.
func fileNode(name, path string) map[string]any {
	return map[string]any{"node-name": name, "driver": "file", "filename": path, "discard": "unmap"}
}

func diskNode(name, file string) map[string]any {
	return map[string]any{"node-name": name, "driver": "qcow2", "file": file, "discard": "unmap", "detect-zeroes": "unmap"}
}

func with(options map[string]any, key string, value any) map[string]any {
	options[key] = value
	return options
}
