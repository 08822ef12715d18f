package machine

import (
	"path/filepath"

	"holt"
)

// Validate refuses what no engine can start. What an engine cannot do without
// (a kernel, say) it checks itself.
func (s Spec) Validate() error {
	bad := func(format string, args ...any) error { return holt.Errorf(holt.InvalidArgument, format, args...) }
	for _, f := range []struct{ name, path string }{{"directory", s.Dir}, {"kernel", s.Kernel}, {"initrd", s.Initrd}, {"disk", s.Disk}, {"image", s.Restore}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			return bad("machine %s %q is not an absolute path", f.name, f.path)
		}
	}
	switch {
	case s.Dir == "":
		return bad("a machine needs a directory")
	case s.CPUs < 1:
		return bad("a machine with %d processors cannot run", s.CPUs)
	case s.MemoryMB < 16:
		return bad("a machine with %d MiB of memory cannot run", s.MemoryMB)
	}
	return nil
}
