package qemu

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/engine/jail"
	"holt/internal/engine/machine"
)

// Growth is the part of a [Hardware] that can change while a machine runs: the
// limits, and what was added. A machine restored from an image is created with
// the same additions in the same order.
type Growth struct {
	MaxCPUs     int    `json:"max_cpus,omitempty"`      // 0: no processor can be added
	MaxMemoryMB int    `json:"max_memory_mb,omitempty"` // 0: no memory can be added
	Processors  []CPU  `json:"processors,omitempty"`    // the added processors
	Memory      []DIMM `json:"memory,omitempty"`        // the added memory
}

// CPU is an added processor.
type CPU struct {
	Model string         `json:"model"` // as QEMU calls the device
	Place map[string]int `json:"place"` // socket-id and the like
}

// DIMM is added memory: a RAM block of its own.
type DIMM struct {
	SizeMB int    `json:"size_mb"`
	Addr   uint64 `json:"addr"` // guest physical address
	Node   int    `json:"node"`
}

const (
	// memorySlots is how often memory can be added to a running machine.
	memorySlots = 32
	// mostMemoryMB is the maximum memory of a running machine, MiB: QEMU's emulated
	// processor has 40 address bits, and above its memory are a GiB for each slot,
	// and the devices.
	mostMemoryMB = 512 << 10
	// cpuPrefix and dimmPrefix begin QEMU's names of additions; a number follows.
	cpuPrefix, dimmPrefix = "cpu-", "dimm-"
)

// growingArgs are kernel arguments for machines to which memory can be added.
// Added memory is used at once. The bounce buffer for 32-bit devices (64 MiB,
// which the kernel reserves if there may be memory above 4 GiB) is not needed:
// there are only virtio devices.
var growingArgs = []string{"memhp_default_state=online", "swiotlb=noforce"}

// growth returns the limits of growth for a spec.
func growth(spec machine.Spec) (g Growth) {
	if spec.MaxCPUs > spec.CPUs {
		g.MaxCPUs = spec.MaxCPUs
	}
	if most := min(spec.MaxMemoryMB, mostMemoryMB); most >= spec.MemoryMB+machine.GrowMB {
		g.MaxMemoryMB = most
	}
	return g
}

// parts returns the sizes of the RAM blocks of the guest's memory, MiB.
func (h Hardware) parts() []int {
	sizes := []int{h.MemoryMB}
	for _, d := range h.Memory {
		sizes = append(sizes, d.SizeMB)
	}
	return sizes
}

// shape returns the guest's shape without its disk.
func (h Hardware) shape() (s machine.Shape) {
	s.CPUs = h.CPUs + len(h.Processors)
	for _, sizeMB := range h.parts() {
		s.MemoryMB += sizeMB
	}
	return s
}

// processors returns the value of -smp.
func (h Hardware) processors() string {
	if h.MaxCPUs == 0 {
		return fmt.Sprint(h.CPUs)
	}
	return fmt.Sprintf("%d,maxcpus=%d", h.CPUs, h.MaxCPUs)
}

// memory returns the value of -m.
func (h Hardware) memory() string {
	if h.MaxMemoryMB == 0 {
		return fmt.Sprintf("%dM", h.MemoryMB)
	}
	return fmt.Sprintf("%dM,slots=%d,maxmem=%dM", h.MemoryMB, memorySlots, h.MaxMemoryMB)
}

// added returns the arguments for additions.
func (h Hardware) added(spec machine.Spec) (args []string) {
	for i, d := range h.Memory {
		args = append(args, "-object", memory(spec, i+1, d.SizeMB),
			"-device", fmt.Sprintf("pc-dimm,id=%s%d,memdev=%s,slot=%d,addr=%d,node=%d", dimmPrefix, i+1, blockOf(i+1), i, d.Addr, d.Node))
	}
	for i, c := range h.Processors {
		device := fmt.Sprintf("%s,id=%s%d", c.Model, cpuPrefix, i+1)
		for _, name := range slices.Sorted(maps.Keys(c.Place)) {
			device += fmt.Sprintf(",%s=%d", name, c.Place[name])
		}
		args = append(args, "-device", device)
	}
	return args
}

// blockOf returns the name of a RAM block of the guest's memory.
func blockOf(part int) string {
	if part == 0 {
		return memoryBlock
	}
	return fmt.Sprint(memoryBlock, "-", part)
}

// Shape implements [machine.Machine].
func (g *guest) Shape(ctx context.Context) (machine.Shape, error) {
	g.taking.Lock()
	defer g.taking.Unlock()
	return g.shape(ctx)
}

func (g *guest) shape(ctx context.Context) (machine.Shape, error) {
	if err := g.refreshAdded(ctx); err != nil {
		return machine.Shape{}, err
	}
	s := g.hardware.shape()
	disk, err := g.root(ctx)
	s.DiskMB = int(disk.Image.Size / mib)
	return s, err
}

// Grow implements [machine.Machine]. It grows the disk first: a guest whose
// disk is full may need that most.
func (g *guest) Grow(ctx context.Context, to machine.Shape) error {
	g.taking.Lock()
	defer g.taking.Unlock()
	err := g.growDisk(ctx, to.DiskMB)
	if err == nil {
		err = g.bounded(to, func() error {
			if err := g.refreshAdded(ctx); err != nil {
				return err
			}
			return g.add(ctx, to)
		})
	}
	if g.isOver(err) {
		return machine.Gone(g.Dir.Path)
	}
	return err
}

// growDisk notifies QEMU, and through it the guest, that the root disk is larger.
func (g *guest) growDisk(ctx context.Context, sizeMB int) error {
	disk, err := g.root(ctx)
	if err != nil || disk.Node == "" || disk.Image.Size >= int64(sizeMB)*mib {
		return err
	}
	err = g.monitor.do(ctx, "block_resize", map[string]any{"node-name": disk.Node, "size": int64(sizeMB) * mib}, nil)
	if err != nil && strings.Contains(err.Error(), unix.ENOSPC.Error()) {
		return machine.FullDisk(filepath.Dir(g.Disk()))
	}
	return err
}

// add adds what is missing. After a failed or interrupted command QEMU may have
// done all of it, or may still do it. QEMU runs one command at a time, so a
// later query returns the result.
func (g *guest) add(ctx context.Context, to machine.Shape) error {
	err := g.addMemory(ctx, to.MemoryMB)
	if err == nil {
		err = g.addProcessors(ctx, to.CPUs)
	}
	if err == nil {
		return nil
	}
	g.unsure = true
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.engine.wait)
	defer cancel()
	if lost := g.refreshAdded(late); lost != nil {
		g.engine.log.Warn("cannot find out what was added to a machine; trying again before the next use", "machine", g.spec.ID, "err", lost)
	}
	return err
}

// refreshAdded asks QEMU what was added, if that is unknown. taking is held.
func (g *guest) refreshAdded(ctx context.Context) error {
	if !g.unsure {
		return nil
	}
	err := g.grown(ctx)
	g.unsure = err != nil
	return err
}

// addMemory adds the missing memory in whole blocks, as one RAM block.
func (g *guest) addMemory(ctx context.Context, toMB int) error {
	hw := &g.hardware
	missing := (min(toMB, hw.MaxMemoryMB) - hw.shape().MemoryMB) / machine.GrowMB * machine.GrowMB
	if missing <= 0 || len(hw.Memory) == memorySlots {
		return nil
	}
	n := len(hw.Memory) + 1
	block := blockOf(n)
	// An interrupted attempt may have left one.
	g.monitor.do(ctx, "object-del", map[string]string{"id": block}, nil)
	err := g.monitor.do(ctx, "object-add", map[string]any{"qom-type": "memory-backend-ram", "id": block, "size": int64(missing) * mib}, nil)
	if err != nil {
		return err
	}
	err = g.monitor.do(ctx, "device_add", map[string]any{"driver": "pc-dimm", "id": fmt.Sprint(dimmPrefix, n), "memdev": block}, nil)
	if err != nil {
		g.monitor.do(context.WithoutCancel(ctx), "object-del", map[string]string{"id": block}, nil)
		return err
	}
	all, err := g.dimms(ctx)
	if err == nil {
		hw.Memory = all
	}
	return err
}

// addProcessors adds the missing processors. All are alike.
func (g *guest) addProcessors(ctx context.Context, to int) error {
	hw := &g.hardware
	for n := hw.shape().CPUs; n < min(to, hw.MaxCPUs); n++ {
		places, err := g.places(ctx)
		if err != nil {
			return err
		}
		free := slices.IndexFunc(places, func(p place) bool { return p.Path == "" })
		if free < 0 {
			return holt.Errorf(holt.Internal, "QEMU has no free slot for another processor")
		}
		device := map[string]any{"driver": places[free].Type, "id": fmt.Sprint(cpuPrefix, len(hw.Processors)+1)}
		for name, at := range places[free].Props {
			device[name] = at
		}
		if err := g.monitor.do(ctx, "device_add", device, nil); err != nil {
			return err
		}
		hw.Processors = append(hw.Processors, CPU{Model: places[free].Type, Place: places[free].Props})
	}
	return nil
}

// place is a slot for a processor. Source: HotpluggableCPU in qapi/machine.json of QEMU 7.2.
type place struct {
	Type  string         `json:"type"`
	Props map[string]int `json:"props"`
	Path  string         `json:"qom-path"` // of the processor in it
}

// places returns the slots for processors, in order.
func (g *guest) places(ctx context.Context) (all []place, err error) {
	if err := g.monitor.do(ctx, "query-hotpluggable-cpus", nil, &all); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(a.Props["socket-id"]-b.Props["socket-id"], a.Props["die-id"]-b.Props["die-id"],
			a.Props["core-id"]-b.Props["core-id"], a.Props["thread-id"]-b.Props["thread-id"])
	})
	return all, nil
}

// dimms returns the added memory.
func (g *guest) dimms(ctx context.Context) ([]DIMM, error) {
	var all []struct {
		Data struct {
			ID   string `json:"id"`
			Size int64  `json:"size"`
			Addr uint64 `json:"addr"`
			Node int    `json:"node"`
		} `json:"data"`
	}
	if err := g.monitor.do(ctx, "query-memory-devices", nil, &all); err != nil {
		return nil, err
	}
	found := make([]DIMM, len(all))
	for _, d := range all {
		n, err := strconv.Atoi(strings.TrimPrefix(d.Data.ID, dimmPrefix))
		if err != nil || n < 1 || n > len(found) {
			return nil, holt.Errorf(holt.Internal, "QEMU has memory %q that holt did not add", clip(d.Data.ID))
		}
		found[n-1] = DIMM{SizeMB: int(d.Data.Size / mib), Addr: d.Data.Addr, Node: d.Data.Node}
	}
	return found, nil
}

// grown finds out what was added to a machine, such as one started by another process.
func (g *guest) grown(ctx context.Context) error {
	hw := &g.hardware
	if hw.MaxMemoryMB > 0 {
		all, err := g.dimms(ctx)
		if err != nil {
			return err
		}
		hw.Memory = all
	}
	if hw.MaxCPUs == 0 {
		return nil
	}
	places, err := g.places(ctx)
	if err != nil {
		return err
	}
	added := map[int]CPU{}
	for _, p := range places {
		if _, name, ok := strings.Cut(p.Path, "/"+cpuPrefix); ok {
			n, err := strconv.Atoi(name)
			if err != nil {
				return holt.Errorf(holt.Internal, "QEMU has a processor %q that holt did not add", clip(p.Path))
			}
			added[n] = CPU{Model: p.Type, Place: p.Props}
		}
	}
	hw.Processors = nil
	for _, n := range slices.Sorted(maps.Keys(added)) {
		hw.Processors = append(hw.Processors, added[n])
	}
	return nil
}

// GrowDisk implements [machine.Engine].
func (e *Engine) GrowDisk(ctx context.Context, path string, sizeMB int) error {
	has, err := virtualSize(path, "qcow2")
	if err != nil || has >= int64(sizeMB)*mib {
		return err
	}
	if err := machine.Room(filepath.Dir(path), machine.MinFreeMB); err != nil {
		return err
	}
	beneath, err := e.beneath(ctx, path)
	if err == nil {
		files := append([]jail.File{{Path: path, Write: true}}, forReading(beneath)...)
		err = e.image(ctx, path, files, "resize", "-q", "-f", "qcow2", "--", path, fmt.Sprintf("%dM", sizeMB))
	}
	if err == nil {
		err = machine.Sync(path)
	}
	if err != nil {
		return fmt.Errorf("grow disk %s: %w", path, err)
	}
	return nil
}
