package computer

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"strings"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/image"
)

// What a computer gets when nothing is asked for, and what it can ask for.
const (
	defaultTemplate = "base"
	defaultCPUs     = 1
	defaultMemoryMB = 1024
	defaultDiskMB   = 10240

	mostCPUs     = 64
	leastMemory  = 256     // MiB; the kernel, systemd and one tool
	mostDiskSize = 1 << 24 // MiB: 16 TiB, what ext4 takes with 4 KiB blocks
)

// Limits of a run's specification; the guest is sent all of it in one message.
const (
	mostRunText = 512 << 10 // bytes of command, arguments and environment; the guest bounds each by its kernel's limits
	mostRunArgs = 4096
	mostRunEnvs = 1024
	mostTimeout = int64(366 * 24 * 3600 * 1000) // milliseconds
)

// Images is the source of root disks; [image.Store] implements it.
type Images interface {
	// Get returns an image by template or by the digest of its root.
	Get(ctx context.Context, ref string) (image.Image, error)
	// List returns every template known, and the shapes in which it was booted, for whichever engine.
	List() ([]holt.Image, error)
	// Hold keeps the root with a digest from being removed while dir, an
	// absolute path, is there.
	Hold(ctx context.Context, digest, dir string) error
	// Snapshot returns the directory of the snapshot with a key of a root that is held; "" if there is none.
	Snapshot(digest, key string) string
	// HasSnapshot tells whether there is one, and is no use of it.
	HasSnapshot(digest, key string) bool
	// MakeSnapshot is Snapshot, and has make leave it in dir/snapshot if there is none.
	MakeSnapshot(ctx context.Context, digest, key string, make func(ctx context.Context, dir string) error) (string, error)
	// Kept returns the snapshots that are in use, the last used first.
	Kept() ([]image.Kept, error)
	// Unbooted returns the built templates that were never booted for a snapshot.
	Unbooted() ([]image.Unbooted, error)
	// Booted records that one was; the template may have another image meanwhile.
	Booted(ctx context.Context, template, digest string) error
	// DropSnapshot removes it, but for the disk that others may be laid over.
	DropSnapshot(ctx context.Context, digest, key string) error
}

// shape fills in the defaults of spec and refuses what no host supports.
func shape(spec holt.ComputerSpec) (holt.ComputerSpec, error) {
	if spec.Name != "" {
		if _, err := holt.ParseName(spec.Name); err != nil {
			return spec, err
		}
	}
	if spec.Workspace != "" && !strings.HasPrefix(spec.Workspace, "wsp_") {
		if _, err := holt.ParseName(spec.Workspace); err != nil {
			return spec, err
		}
	}
	if spec.Template == "" {
		spec.Template = defaultTemplate
	}
	if spec.CPUs == 0 {
		spec.CPUs = defaultCPUs
	}
	if spec.MemoryMB == 0 {
		spec.MemoryMB = defaultMemoryMB
	}
	if spec.DiskSizeMB == 0 {
		spec.DiskSizeMB = defaultDiskMB
	}
	spec.IdleTimeout = spec.IdleTimeout.Or(holt.DefaultIdleTimeout)
	if spec.DiskSizeMB < 0 || spec.DiskSizeMB > mostDiskSize {
		return spec, holt.Errorf(holt.InvalidArgument, "invalid root disk size %d MiB", spec.DiskSizeMB).
			WithHint("the minimum is the template's size, the maximum %d MiB; put larger files in the workspace", mostDiskSize)
	}
	if err := checkWorkspaceSize(spec); err != nil {
		return spec, err
	}
	return spec, boundShape(spec.CPUs, spec.MemoryMB)
}

// CheckShape refuses a shape that this host does not support.
func CheckShape(s holt.Shape) error {
	return boundShape(cmp.Or(s.CPUs, defaultCPUs), cmp.Or(s.MemoryMB, defaultMemoryMB))
}

func boundShape(cpus, memoryMB int) error {
	if cpus < 1 || cpus > mostCPUs {
		return holt.Errorf(holt.InvalidArgument, "invalid number of processors: %d", cpus).
			WithHint("give 1 to %d; more than the host has makes the computer slower", mostCPUs)
	}
	most := hostMemoryMB()
	if memoryMB < leastMemory || memoryMB > most {
		return holt.Errorf(holt.InvalidArgument, "invalid memory size %d MiB", memoryMB).
			WithHint("give %d to %d MiB, the memory of this host", leastMemory, most)
	}
	return nil
}

func hostMemoryMB() int {
	total, _ := machine.HostMemory()
	return max(leastMemory, int(total/mib))
}

// pickFor returns the image and the engine of a new computer.
func (c *Config) pickFor(ctx context.Context, spec holt.ComputerSpec) (image.Image, machine.Engine, error) {
	e, err := c.Engines.named(spec.Engine)
	if err != nil {
		return image.Image{}, nil, err
	}
	img, err := c.pick(ctx, e, spec.Template)
	if err != nil {
		return img, nil, err
	}
	e, err = c.Engines.choose(spec.Engine, img)
	return img, e, err
}

// pick returns the image of a template. An engine without root disks only needs an existing
// template.
func (c *Config) pick(ctx context.Context, e machine.Engine, template string) (image.Image, error) {
	if e.Capabilities().RootDisk {
		return c.Images.Get(ctx, template)
	}
	known := image.Templates()
	for _, t := range known {
		if t == template {
			return image.Image{Image: holt.Image{Template: t}}, nil
		}
	}
	return image.Image{}, holt.Errorf(holt.NotFound, "there is no template %q", template).
		WithHint("the templates are: %s", strings.Join(known, ", "))
}

var userRE = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}\$?$|^[0-9]{1,10}$`)

// checkRun refuses a run that no guest can start. Whether the user, the directory and the program
// exist the guest agent checks.
func checkRun(spec holt.RunSpec) error {
	if (spec.Command == "") == (len(spec.Argv) == 0) {
		return holt.Errorf(holt.InvalidArgument, "a run needs either a shell command or a program with arguments").
			WithHint("give exactly one of command and argv")
	}
	if len(spec.Argv) > 0 && spec.Argv[0] == "" {
		return holt.Errorf(holt.InvalidArgument, "the program to run has no name")
	}
	text, bad := len(spec.Command), strings.ContainsRune(string(spec.Command), 0)
	for _, arg := range spec.Argv {
		text, bad = text+len(arg), bad || strings.ContainsRune(arg, 0)
	}
	for k, v := range spec.Env {
		if k == "" || strings.ContainsAny(string(k), "=\x00") {
			return holt.Errorf(holt.InvalidArgument, "invalid environment variable name %q", clip(string(k))).
				WithHint("a name must not be empty or contain = or a NUL byte")
		}
		text, bad = text+len(k)+len(v), bad || strings.ContainsRune(string(v), 0)
	}
	for k, v := range spec.Secrets {
		if k == "" || strings.ContainsAny(string(k), "=\x00") {
			return holt.Errorf(holt.InvalidArgument, "invalid environment variable name %q", clip(string(k))).
				WithHint("a name must not be empty or contain = or a NUL byte")
		}
		if len(strings.TrimRight(string(v), "\r\n")) < holt.MinSecret {
			return holt.Errorf(holt.InvalidArgument, "the secret %s is too short to be masked", clip(string(k))).
				WithHint("the minimum is %d bytes; give a shorter value as a plain variable", holt.MinSecret)
		}
		text, bad = text+len(k)+len(v), bad || strings.ContainsRune(string(v), 0)
	}
	if bad {
		return holt.Errorf(holt.InvalidArgument, "a command, argument or variable contains a NUL byte").
			WithHint("send binary data as input or in a file")
	}
	if text > mostRunText || len(spec.Argv) > mostRunArgs || len(spec.Env)+len(spec.Secrets) > mostRunEnvs {
		return holt.Errorf(holt.InvalidArgument, "the command, its arguments and its environment are too long: %d bytes", text).
			WithHint("the maximum is %d bytes, %d arguments and %d variables; write a script to a file and run it", mostRunText, mostRunArgs, mostRunEnvs)
	}
	return checkRunPlace(spec)
}

func checkRunPlace(spec holt.RunSpec) error {
	if spec.Cwd != "" {
		if _, err := cleanPath(string(spec.Cwd)); err != nil {
			return err
		}
	}
	if spec.User != "" && !userRE.MatchString(spec.User) {
		return holt.Errorf(holt.InvalidArgument, "invalid Linux user %q", clip(spec.User)).
			WithHint("a user name begins with a-z or _ and has at most 32 characters")
	}
	if spec.TimeoutMS < 0 || spec.TimeoutMS > mostTimeout {
		return holt.Errorf(holt.InvalidArgument, "invalid timeout %d ms", spec.TimeoutMS).
			WithHint("the maximum is %d; 0 means no timeout", mostTimeout)
	}
	return nil
}

// mostPath is PATH_MAX of Linux, which counts the final NUL.
const mostPath = 4096

// cleanPath returns p in its shortest form: absolute, without "." and "..".
func cleanPath(p string) (string, error) {
	switch {
	case p == "":
		return "", holt.Errorf(holt.InvalidArgument, "the path is empty").WithHint("give an absolute path, for example /home/agent/notes.md")
	case len(p) > mostPath:
		return "", holt.Errorf(holt.InvalidArgument, "the path %q is too long", clip(p)).WithHint("the maximum is %d bytes", mostPath)
	case strings.ContainsRune(p, 0):
		return "", holt.Errorf(holt.InvalidArgument, "the path %q contains a NUL byte", clip(p)).WithHint("Linux does not allow it in names")
	case p[0] != '/':
		return "", holt.Errorf(holt.InvalidArgument, "the path %q is not absolute", clip(p)).WithHint("start it with /, for example /home/agent/notes.md")
	}
	if depth(p) < 0 {
		return "", holt.Errorf(holt.InvalidArgument, "the path %q leads above /", clip(p)).WithHint("remove some ..")
	}
	clean := path.Clean(p)
	for name := range strings.SplitSeq(clean, "/") {
		if len(name) > 255 {
			return "", holt.Errorf(holt.InvalidArgument, "the name %q is too long", clip(name)).
				WithHint("the maximum is 255 bytes; it has %d", len(name))
		}
	}
	return clean, nil
}

// depth returns -1 if any prefix of p leads above the root.
func depth(p string) int {
	d := 0
	for name := range strings.SplitSeq(p, "/") {
		switch name {
		case "", ".":
		case "..":
			if d--; d < 0 {
				return -1
			}
		default:
			d++
		}
	}
	return d
}

// clip shortens an untrusted value for logs and terminals.
func clip(s string) string { return holt.Clip(s, 80) }
