package computer

import (
	"context"
	"slices"
	"strings"
	"time"

	"holt"
	"holt/internal/engine/machine"
	"holt/internal/image"
)

// Engines are the engines of a daemon. A computer stays with the one that it was created on: with
// its family, the part of its name before a dash, since disks do not depend on the acceleration.
type Engines struct {
	Default machine.Engine   // of computers for which neither the caller nor the template names one
	Others  []machine.Engine // each of another family
	// Missing has, by family, why this host does not have an engine. It may be incomplete.
	Missing map[string]error
}

// All returns the engines, the default first.
func (e Engines) All() []machine.Engine { return append([]machine.Engine{e.Default}, e.Others...) }

// Of returns the engine with a name or of a family; "": the default. One that this daemon does not
// have is represented by an engine that starts nothing, and says why.
func (e Engines) Of(name string) machine.Engine {
	if name == "" {
		return e.Default
	}
	for _, one := range e.All() {
		if family(one.Name()) == family(name) {
			return one
		}
	}
	return missing{name, e.Missing[family(name)]}
}

// choose returns the engine of a new computer: the one that the caller names, the one that the
// template needs, or the default. Engines without root disks have no templates, so they take all.
//
// Errors: InvalidArgument (there is no such engine, or the template needs another), Unsupported
// (this daemon does not have it).
func (e Engines) choose(named string, img image.Image) (machine.Engine, error) {
	if named == "" && !e.Default.Capabilities().RootDisk {
		return e.Default, nil
	}
	if named != "" && img.Engine != "" && named != img.Engine {
		return nil, holt.Errorf(holt.InvalidArgument, "computers of the template %s do not work with the engine %s: they need %s", img.Template, named, img.Engine).
			WithHint("omit the engine, or use %s", img.Engine)
	}
	chosen, err := e.named(named)
	if err == nil && named == "" && img.Engine != "" {
		chosen = e.Of(img.Engine)
		if err = present(chosen); err != nil {
			err = holt.Errorf(holt.CodeOf(err), "the template %s needs the engine %s: %w", img.Template, img.Engine, err).WithHint("%s", holt.AsError(err).Hint)
		}
	}
	return chosen, err
}

// named returns the engine that a caller names; "": the default.
func (e Engines) named(name string) (machine.Engine, error) {
	known := slices.Contains([]string{"", "qemu", "gvisor"}, name)
	if known || e.has(name) {
		one := e.Of(name)
		return one, present(one)
	}
	return nil, holt.Errorf(holt.InvalidArgument, "there is no engine %q", clip(name)).WithHint("use qemu or gvisor, or omit it")
}

func (e Engines) has(name string) bool {
	return slices.ContainsFunc(e.All(), func(one machine.Engine) bool { return family(one.Name()) == name })
}

// engine returns the engine of a computer.
func (c *Config) engine(r record) machine.Engine { return c.Engines.Of(r.Engine) }

func (m *transition) engine() machine.Engine { return m.s.cfg.engine(*m.r) }

// limits are the deadlines for machines of an engine.
func (c *Config) limits(e machine.Engine) Limits {
	return c.Limits.or(defaultLimits(e.Capabilities().Acceleration))
}

// longestWake is the longest Limits.Wake of all engines: whose the computer is comes to be known later.
func (c *Config) longestWake() (longest time.Duration) {
	for _, e := range c.Engines.All() {
		longest = max(longest, c.limits(e).Wake)
	}
	return longest
}

// family is the engine without its acceleration.
func family(engine string) string {
	f, _, _ := strings.Cut(engine, "-")
	return f
}

// present returns Unsupported if an engine is one that this daemon does not have.
func present(e machine.Engine) error {
	if m, ok := e.(missing); ok {
		return m.err()
	}
	return nil
}

// keepsMemory returns Unsupported if an engine cannot save the memory of machines.
func keepsMemory(e machine.Engine) error {
	if err := present(e); err != nil {
		return err
	}
	if e.Capabilities().MemorySnapshot {
		return nil
	}
	return holt.Errorf(holt.Unsupported, "the engine %s does not support snapshots of running computers", e.Name()).
		WithHint(machine.UseVirtual + "; holt workspace checkpoint and fork work with every engine")
}

// keepsTemplates reports whether an engine supports template snapshots.
func keepsTemplates(e machine.Engine) bool {
	caps := e.Capabilities()
	return caps.MemorySnapshot && caps.RootDisk
}

// missing represents an engine that this daemon does not have. It starts nothing and changes no
// disk. Its computers can be listed, stopped and deleted.
type missing struct {
	name string
	why  error // nil: unknown
}

func (e missing) err() error {
	err := holt.Errorf(holt.Unsupported, "this daemon does not have the engine %s", family(e.name))
	hint := "serve this data directory with --engine " + family(e.name)
	if e.why != nil {
		err = holt.Errorf(holt.Unsupported, "this daemon does not have the engine %s: %w", family(e.name), e.why)
		if why := holt.AsError(e.why).Hint; why != "" {
			hint = why + ", then restart the daemon: holt down --keep, then holt up"
		}
	}
	return err.WithHint("%s", hint)
}

func (e missing) Name() string { return e.name }

// Capabilities has what the records of its computers have.
func (e missing) Capabilities() machine.Capabilities {
	own := family(e.name) != "local"
	return machine.Capabilities{Isolated: own, RootDisk: own, OwnNetwork: own}
}

func (e missing) CreateDisk(context.Context, string, machine.Base, int) error { return e.err() }

func (e missing) DiskBase(context.Context, string) (machine.Base, error) {
	return machine.Base{}, e.err()
}

func (e missing) MergeDisk(context.Context, string, string) error { return e.err() }

func (e missing) FlattenDisk(context.Context, string, string, string) error { return e.err() }

func (e missing) GrowDisk(context.Context, string, int) error { return e.err() }

func (e missing) Start(context.Context, machine.Spec) (machine.Machine, error) { return nil, e.err() }

// Adopt leaves a machine alone that still runs.
func (e missing) Adopt(_ context.Context, path string) (machine.Machine, error) {
	dir, err := machine.OpenDir(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	handle, _, err := dir.Find(e.Strays)
	if err != nil {
		return nil, err
	}
	handle.Close()
	return nil, e.err()
}

func (e missing) Ended(string) machine.Ending { return machine.Ending{} }

func (e missing) Strays(string) ([]machine.Stray, error) { return nil, nil }
