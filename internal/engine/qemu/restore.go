package qemu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"holt"
	"holt/internal/engine/machine"
)

// restored returns the spec and hardware of a machine restored from an image,
// or why it cannot be restored.
func (e *Engine) restored(spec machine.Spec) (_ machine.Spec, was Hardware, _ error) {
	if !filepath.IsAbs(spec.Restore) {
		return spec, was, holt.Errorf(holt.InvalidArgument, "machine image %q is not an absolute path", spec.Restore)
	}
	im, err := machine.ReadImage(spec.Restore)
	if err != nil {
		return spec, was, err
	}
	if spec, err = spec.Restored(im); err != nil {
		return spec, was, err
	}
	if err := json.Unmarshal(im.Hardware, &was); err != nil {
		return spec, was, holt.Errorf(holt.Corrupt, "parse hardware of machine image: %w", err)
	}
	here := e.verdict.hardware(spec).asIn(was)
	here.CPUs, here.MemoryMB, here.Growth = was.CPUs, was.MemoryMB, was.Growth // available on any host
	if what := was.differs(here); what != "" {
		return spec, was, holt.Errorf(holt.Unsupported, "the image in %s cannot be restored here: %s", spec.Restore, what).
			WithHint("a memory image needs the same hardware; the machine's disk can be booted on any")
	}
	for i, sizeMB := range was.parts() {
		info, err := os.Stat(filepath.Join(spec.Restore, machine.MemoryPart(i)))
		if err == nil && info.Size() != int64(sizeMB)*mib {
			err = holt.Errorf(holt.Corrupt, "the memory file has %d bytes instead of %d MiB", info.Size(), sizeMB)
		}
		if err != nil {
			return spec, was, fmt.Errorf("inspect memory of machine image: %w", err)
		}
	}
	return spec, was, nil
}

// differs describes the differences, or returns "".
func (h Hardware) differs(here Hardware) string {
	var what []string
	a, b := reflect.ValueOf(h), reflect.ValueOf(here)
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			what = append(what, fmt.Sprintf("its %s is %s, here it is %s",
				strings.ReplaceAll(name, "_", " "), clip(fmt.Sprint(a.Field(i))), clip(fmt.Sprint(b.Field(i)))))
		}
	}
	return strings.Join(what, "; ")
}

// enlarge notifies the guest of a restored machine, before its processors run,
// if its disk is larger than when the image was made. A resize to the current
// size has no other effect.
func (g *guest) enlarge(ctx context.Context) error {
	disk, err := g.root(ctx)
	if err != nil || disk.Image.Size == disk.Image.Backing.Size {
		return err
	}
	return g.monitor.do(ctx, "block_resize", map[string]any{"node-name": disk.Node, "size": disk.Image.Size}, nil)
}

// load reads the state of an image into a new machine. Its processors stay stopped.
func (g *guest) load(ctx context.Context) error {
	if err := g.capabilities(ctx, "events"); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(g.spec.Restore, machine.StateFile))
	if err != nil {
		return fmt.Errorf("open machine image: %w", err)
	}
	defer f.Close()
	if err := g.monitor.give(ctx, "state", f); err != nil {
		return err
	}
	if err := g.monitor.do(ctx, "migrate-incoming", map[string]string{"uri": "fd:state"}, nil); err != nil {
		return err
	}
	for {
		select {
		case e, ok := <-g.monitor.events:
			if !ok {
				return errMonitorClosed // QEMU logs the reason and exits
			}
			var now migration
			if e.name != "MIGRATION" || json.Unmarshal(e.data, &now) != nil {
				continue
			}
			switch now.Status {
			case statusCompleted:
				return nil
			case "failed":
				return holt.Errorf(holt.Corrupt, "QEMU cannot load the image in %s", g.spec.Restore)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
