package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"holt"
)

// kernel is a Debian kernel with its modules.
type kernel struct {
	Version string   `json:"version"` // of the package, with the release: 6.1.0-56-cloud-amd64_6.1.192-2
	Release string   `json:"release"` // as uname -r: 6.1.0-56-cloud-amd64
	Boot    []string `json:"boot"`    // modules of the initramfs in load order, below modules/
	Modules []string `json:"modules"` // all modules for the root disk, sorted, below modules/
}

// Files of a kernel's directory.
const (
	kernelRecord  = "kernel.json"
	kernelBoot    = "vmlinuz"
	kernelModules = "modules"
)

// kernelDir is the directory of the build's kernel.
func (b *build) kernelDir() string { return filepath.Join(b.scratch.dir, "kernel") }

// kernelPackage is the metapackage of Debian's newest kernel for virtual machines.
func kernelPackage() string { return "linux-image-cloud-" + runtime.GOARCH }

var kernelDepends = regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-([0-9][a-z0-9.+-]*)) \(= ([0-9][A-Za-z0-9.+~:-]*)\)`)

// kernel links the newest kernel of the sources into the build's directory. It
// fetches the kernel if the store does not have that version.
func (b *build) kernel(ctx context.Context) (kernel, error) {
	show, err := b.apt.run(ctx, b.scratch.work, "apt-cache", "show", "--no-all-versions", kernelPackage())
	if err != nil {
		return kernel{}, err
	}
	m := kernelDepends.FindStringSubmatch(show)
	if m == nil {
		return kernel{}, holt.Errorf(holt.Unsupported, "this host's Debian sources have no package %s", kernelPackage())
	}
	k := kernel{Release: m[2], Version: m[2] + "_" + strings.ReplaceAll(m[3], ":", "%3a")}
	release, err := b.store.lock(ctx, "kernel", func() { b.report("kernel", "waiting for another build to fetch the kernel", 0.01) })
	if err != nil {
		return k, err
	}
	defer release()
	dir := b.store.kernelDir(k.Version)
	if err := readJSON(filepath.Join(dir, kernelRecord), &k); err != nil {
		if err := b.fetchKernel(ctx, m[1], m[3], dir, &k); err != nil {
			return k, err
		}
	}
	// Hard links, so that this build keeps the kernel when another removes it from the store.
	return k, linkTree(dir, b.kernelDir())
}

// fetchKernel downloads and unpacks a kernel package and publishes it as dir. It
// removes other kernels from the store, since images have their own links.
func (b *build) fetchKernel(ctx context.Context, name, version, dir string, k *kernel) error {
	b.report("kernel", "downloading "+name, 0.02)
	if _, err := b.apt.run(ctx, b.scratch.work, "apt-get", "download", name+"="+version); err != nil {
		return err
	}
	debs, err := filepath.Glob(b.scratch.path(name + "_*.deb"))
	if err != nil || len(debs) != 1 {
		return holt.Errorf(holt.Internal, "apt-get download left %d files", len(debs))
	}
	b.report("kernel", "unpacking "+name, 0.04)
	unpacked := filepath.Join(b.scratch.dir, "unpacked")
	if err := unpackKernel(ctx, debs[0], unpacked, k); err != nil {
		return err
	}
	if err := b.store.dropKernels(); err != nil {
		return err
	}
	return errors.Join(publish(unpacked, dir), os.Remove(debs[0]))
}

// unpackKernel puts the boot file and the modules of a kernel package into dir
// and completes k.
func unpackKernel(ctx context.Context, deb, dir string, k *kernel) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	contain(cmd)
	runtime.LockOSThread() // Pdeathsig is sent when the thread that forked ends
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start dpkg-deb: %w", err)
	}
	modules, err := readKernelTar(bufio.NewReaderSize(out, 1<<20), dir, k.Release)
	if err != nil {
		out.Close() // dpkg-deb may still be writing
		cmd.Process.Kill()
	}
	if werr := cmd.Wait(); err == nil && werr != nil {
		err = holt.Errorf(holt.Corrupt, "unpack %s: %w: %s", filepath.Base(deb), werr, clip(stderr.String()))
	}
	if err != nil {
		return err
	}
	return finishKernel(dir, modules, k)
}

// finishKernel removes needless modules, computes the load order of the initramfs,
// and writes the record.
func finishKernel(dir string, modules map[string]module, k *kernel) error {
	kept := prune(modules)
	for name, m := range modules {
		if _, ok := kept[name]; !ok {
			if err := os.Remove(filepath.Join(dir, kernelModules, m.path)); err != nil {
				return err
			}
		}
	}
	var err error
	if k.Boot, err = loadOrder(kept, bootModules()); err != nil {
		return err
	}
	k.Modules = nil
	for m := range maps.Values(kept) {
		k.Modules = append(k.Modules, m.path)
	}
	slices.Sort(k.Modules)
	return writeJSON(filepath.Join(dir, kernelRecord), k)
}

// readKernelTar unpacks from a kernel package: boot/vmlinuz-RELEASE, the modules,
// and the files modules.* that depmod reads.
func readKernelTar(r io.Reader, dir, release string) (map[string]module, error) {
	modules := map[string]module{}
	boot := false
	prefix := "lib/modules/" + release + "/"
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read kernel package: %w", err)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(h.Name, "./"), "usr/")
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			continue
		}
		to, isModule := "", false
		switch rest, ok := strings.CutPrefix(name, prefix); {
		case ok && strings.HasSuffix(rest, ".ko"):
			to, isModule = "modules/"+rest, true
		case ok && strings.HasPrefix(rest, "modules."):
			to = "modules/" + rest
		case name == "boot/vmlinuz-"+release:
			to, boot = kernelBoot, true
		default:
			continue
		}
		data, err := readEntry(tr, h)
		if err != nil {
			return nil, err
		}
		if isModule {
			if err := addModule(modules, strings.TrimPrefix(to, "modules/"), data); err != nil {
				return nil, err
			}
		}
		if err := writeUnder(dir, to, data); err != nil {
			return nil, err
		}
	}
	if !boot || len(modules) == 0 {
		return nil, holt.Errorf(holt.Corrupt, "the kernel package has no kernel or no modules for %s", release)
	}
	return modules, nil
}

func readEntry(tr *tar.Reader, h *tar.Header) ([]byte, error) {
	if h.Size > maxModuleBytes {
		return nil, holt.Errorf(holt.Corrupt, "%s in the kernel package has %d bytes", h.Name, h.Size)
	}
	data, err := io.ReadAll(tr)
	if err != nil {
		return nil, fmt.Errorf("read %s of the kernel package: %w", h.Name, err)
	}
	return data, nil
}

func writeUnder(dir, name string, data []byte) error {
	to := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// linkTree makes hard links to the files of a directory below another.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return linkFile(name, filepath.Join(to, rel))
	})
}

func linkFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Link(from, to)
}
