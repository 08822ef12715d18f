package image

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"holt"
)

// Limits of kernel modules, far above any real one.
const (
	maxModuleBytes  = 64 << 20
	maxModinfoBytes = 1 << 20
	maxModules      = 16384
)

// bootModules are the modules that the guest binary needs before it can mount the root
// disk and answer: disk, ports, FUSE, network, entropy. The initramfs has them with their
// dependencies. All others load from the root disk on demand.
func bootModules() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_console", "fuse", "virtio_net", "virtio_rng"}
}

// needless are directories of the kernel's modules that a virtual machine
// under QEMU cannot use: drivers of hardware it never has, and of other
// hypervisors. File systems, networking, containers and nested
// virtualisation stay.
func needless() []string {
	return []string{
		"drivers/comedi", "drivers/cpufreq", "drivers/hv", "drivers/infiniband", "drivers/leds",
		"drivers/media", "drivers/mmc", "drivers/net/ethernet", "drivers/nvdimm", "drivers/platform",
		"drivers/soundwire", "drivers/thermal", "drivers/usb", "drivers/xen", "drivers/net/wireless",
	}
}

// module is one loadable kernel module.
type module struct {
	path    string // below the modules' directory, such as kernel/fs/fuse/fuse.ko
	depends []string
}

// moduleName turns a file name or a dependency into the kernel's own spelling.
func moduleName(s string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(s), ".ko"), "-", "_")
}

// parseModule returns the names of the modules that must be loaded before the ELF
// file in r: those in depends, and those after pre: in softdep, of its .modinfo
// section.
func parseModule(r io.ReaderAt) ([]string, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, holt.Errorf(holt.Corrupt, "no .modinfo section")
	}
	if section.Type == elf.SHT_NOBITS || section.Size > maxModinfoBytes || section.FileSize > maxModinfoBytes {
		return nil, holt.Errorf(holt.Corrupt, ".modinfo has %d bytes", section.Size)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	return parseModinfo(info), nil
}

// parseModinfo reads the NUL-separated key=value pairs of .modinfo.
func parseModinfo(info []byte) []string {
	var out []string
	for pair := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(pair, []byte("depends=")); ok {
			for name := range strings.SplitSeq(string(list), ",") {
				out = append(out, name)
			}
		}
		if soft, ok := bytes.CutPrefix(pair, []byte("softdep=")); ok {
			out = append(out, preSoftdeps(string(soft))...)
		}
	}
	for i := range out {
		out[i] = moduleName(strings.TrimSpace(out[i]))
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" || name == "." })
}

// preSoftdeps returns the names after "pre:" in "pre: a b post: c".
func preSoftdeps(soft string) []string {
	var out []string
	pre := false
	for word := range strings.FieldsSeq(soft) {
		switch word {
		case "pre:":
			pre = true
		case "post:":
			pre = false
		default:
			if pre {
				out = append(out, word)
			}
		}
	}
	return out
}

// loadOrder returns the paths of the named modules and of all they depend on,
// each after its dependencies. A dependency that is not a module is built into
// the kernel. A named module that is missing is an error.
func loadOrder(modules map[string]module, want []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		m, ok := modules[name]
		if !ok || seen[name] {
			return
		}
		seen[name] = true // before the dependencies, so that a cycle ends
		for _, dep := range m.depends {
			visit(dep)
		}
		order = append(order, m.path)
	}
	for _, name := range want {
		if _, ok := modules[moduleName(name)]; !ok {
			return nil, holt.Errorf(holt.Unsupported, "the kernel has no module %s", name)
		}
		visit(moduleName(name))
	}
	return order, nil
}

// prune returns the modules without the needless ones, but keeps the dependencies of
// those that it keeps.
func prune(modules map[string]module) map[string]module {
	kept := map[string]module{}
	var keep func(name string)
	keep = func(name string) {
		m, ok := modules[name]
		if _, have := kept[name]; !ok || have {
			return
		}
		kept[name] = m
		for _, dep := range m.depends {
			keep(dep)
		}
	}
	drop := needless()
	for name, m := range modules {
		dir := strings.TrimPrefix(path.Dir(m.path), "kernel/")
		if !slices.ContainsFunc(drop, func(d string) bool { return strings.HasPrefix(dir+"/", d+"/") }) {
			keep(name)
		}
	}
	return kept
}

// addModule adds the module at name, whose content is data, to modules.
func addModule(modules map[string]module, name string, data []byte) error {
	if len(modules) >= maxModules {
		return holt.Errorf(holt.Corrupt, "more than %d kernel modules", maxModules)
	}
	depends, err := parseModule(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("read kernel module %s: %w", name, err)
	}
	modules[moduleName(name)] = module{path: name, depends: depends}
	return nil
}
