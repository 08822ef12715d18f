package machine

import (
	"path/filepath"

	"holt"
)

// Validate refuses specs that no engine can start. Each engine checks its own
// requirements, such as a kernel.
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
		return bad("invalid number of processors %d: the minimum is 1", s.CPUs)
	case s.MemoryMB < 16:
		return bad("invalid memory size of %d MiB: the minimum is 16 MiB", s.MemoryMB)
	}
	return nil
}
