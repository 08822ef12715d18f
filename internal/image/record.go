package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"holt"
)

// record is roots/DIGEST/record.json.
type record struct {
	Template string `json:"template"`
	Summary  string `json:"summary,omitempty"`
	From     string `json:"from,omitempty"` // the OCI image that it was built from
	Digest   string `json:"digest"`
	Kernel   string `json:"kernel"` // version; its modules are on the disk
	// BootModules are those of the initramfs, in load order.
	BootModules []string  `json:"boot_modules"`
	DiskMB      int       `json:"disk_mb"`
	Args        []string  `json:"args,omitempty"`
	Units       []string  `json:"units,omitempty"`  // that must be active before a computer is ready
	Engine      string    `json:"engine,omitempty"` // that its computers need
	Bytes       int64     `json:"bytes"`            // allocated
	BuiltAt     time.Time `json:"built_at"`
}

// current is templates/NAME.json: the root disk of a template's last build.
type current struct {
	Digest string `json:"digest"`
	// Unbooted: a daemon has yet to boot it, in this shape, and to keep a snapshot.
	Unbooted bool       `json:"unbooted,omitempty"`
	Shape    holt.Shape `json:"shape,omitzero"`
}

var (
	digestRE = regexp.MustCompile(`^[0-9a-f]{64}$`)
	prefixRE = regexp.MustCompile(`^[0-9a-f]{12,63}$`)
)

// Files of roots/DIGEST, in addition to those of its kernel.
const (
	rootDisk   = "root.ext4"
	rootRecord = "record.json"
)

// record reads the record of a root disk. It returns fs.ErrNotExist if there is none.
func (s *Store) record(digest string) (rec record, err error) {
	return rec, readJSON(filepath.Join(s.rootDir(digest), rootRecord), &rec)
}

func (s *Store) templateFile(name string) string {
	return filepath.Join(s.dir, "templates", name+".json")
}

// changeTemplate calls change with the present state of a template, zero if it has none, and writes the state if change
// returns true. It does not wait for builds: it has its own lock, the last in the lock order.
func (s *Store) changeTemplate(ctx context.Context, name string, change func(c *current) bool) error {
	release, err := s.lock(ctx, name+".current", func() {})
	if err != nil {
		return err
	}
	defer release()
	var c current
	if err := readJSON(s.templateFile(name), &c); err != nil {
		c = current{} // absent or damaged
	}
	if !change(&c) {
		return nil
	}
	return writeJSON(s.templateFile(name), c)
}

// setTemplate records the root of a template's build. changed: it boots with other arguments or units than before,
// although its digest may be the same.
func (s *Store) setTemplate(ctx context.Context, name, digest string, changed bool) error {
	return s.changeTemplate(ctx, name, func(c *current) bool {
		if c.Digest == digest && !changed {
			return false
		}
		*c = current{Digest: digest, Unbooted: true}
		return true
	})
}

// removeTemplate removes a template's state.
func (s *Store) removeTemplate(ctx context.Context, name string) error {
	release, err := s.lock(ctx, name+".current", func() {})
	if err != nil {
		return err
	}
	defer release()
	return os.Remove(s.templateFile(name))
}

// Unbooted is a template that a daemon has yet to boot, and the shape of that machine.
type Unbooted struct {
	Template string
	Shape    holt.Shape // zero fields: the default of a computer
}

// Unbooted returns the templates that were built and not booted, see [Store.Booted].
func (s *Store) Unbooted() ([]Unbooted, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "templates"))
	if err != nil {
		return nil, err
	}
	var out []Unbooted
	for _, e := range entries {
		var c current
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && readJSON(s.templateFile(name), &c) == nil && c.Unbooted {
			out = append(out, Unbooted{name, c.Shape})
		}
	}
	return out, nil
}

// BootLater records the shape in which a daemon has to boot an image, if it is that of its template's last build.
func (s *Store) BootLater(ctx context.Context, template, digest string, shape holt.Shape) error {
	return s.changeTemplate(ctx, template, func(c *current) bool {
		if c.Digest != digest {
			return false
		}
		c.Unbooted, c.Shape = true, shape
		return true
	})
}

// Booted records that an image was booted, with or without success, if it is that of its template's last build.
func (s *Store) Booted(ctx context.Context, template, digest string) error {
	return s.changeTemplate(ctx, template, func(c *current) bool {
		if c.Digest != digest || !c.Unbooted {
			return false
		}
		*c = current{Digest: digest}
		return true
	})
}

// Get returns an image by template name, recipe path or root digest (12 digits are enough). A
// template name or path means the template's last build. Built is false if a Build would
// make another image, since the recipe or the host has changed. Get makes a new initramfs
// if the guest binary has changed.
//
// Errors: NotFound for an unknown template, and for one that is not built.
func (s *Store) Get(ctx context.Context, ref string) (Image, error) {
	if err := ctx.Err(); err != nil {
		return Image{}, err
	}
	rec, err := s.find(ref)
	if err != nil {
		return Image{}, err
	}
	return s.image(rec, s.isCurrent(rec))
}

// abbreviated returns the root whose digest starts with prefix.
func (s *Store) abbreviated(prefix string) (record, bool, error) {
	records, err := s.records()
	if err != nil {
		return record{}, false, err
	}
	for _, rec := range records {
		if strings.HasPrefix(rec.Digest, prefix) { // 48 bits or more: unique in practice
			return rec, true, nil
		}
	}
	return record{}, false, nil
}

// find returns the record of a template name, recipe path or digest.
func (s *Store) find(ref string) (record, error) {
	if digestRE.MatchString(ref) {
		rec, err := s.record(ref)
		if errors.Is(err, fs.ErrNotExist) {
			return rec, holt.Errorf(holt.NotFound, "there is no image with digest %.12s…", ref).
				WithHint("holt image list shows all images")
		}
		return rec, err
	}
	name := ref
	if isPath(ref) {
		r, err := loadRecipe(ref)
		if err != nil {
			return record{}, err
		}
		name = r.Name
	}
	if _, err := holt.ParseName(name); err != nil {
		return record{}, unknownTemplate(name, s.known())
	}
	if prefixRE.MatchString(ref) {
		if rec, ok, err := s.abbreviated(ref); ok || err != nil {
			return rec, err
		}
	}
	var c current
	err := readJSON(s.templateFile(name), &c)
	if err == nil {
		var rec record
		rec, err = s.record(c.Digest)
		if err == nil && holt.OCIReference(ref) && rec.From != ref { // an image of another reference has the same name
			err = fs.ErrNotExist
		}
		if err == nil {
			return rec, nil
		}
	}
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return record{}, err
	case slices.Contains(Templates(), name) || isPath(ref):
		return record{}, holt.Errorf(holt.NotFound, "the template %s is not built", name).WithHint("holt image build %s", ref)
	}
	return record{}, unknownTemplate(name, s.known())
}

// known returns the names of the embedded templates and of those that were built here.
func (s *Store) known() []string {
	names := Templates()
	records, _ := s.records() // on an error only the embedded ones
	for _, rec := range records {
		names = append(names, rec.Template)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isLatest reports whether rec is that of its template's last build.
func (s *Store) isLatest(rec record) bool {
	var c current
	return readJSON(s.templateFile(rec.Template), &c) == nil && c.Digest == rec.Digest
}

// isCurrent reports whether a build of rec's template would return rec. It returns true for
// a template from a file, whose path is not recorded.
func (s *Store) isCurrent(rec record) bool {
	if !slices.Contains(Templates(), rec.Template) {
		return true
	}
	r, err := loadRecipe(rec.Template)
	if err != nil {
		return false
	}
	p, err := newPlan(r, s.opt, discard())
	if err != nil {
		return false
	}
	digest, err := p.digest()
	return err == nil && digest == rec.Digest
}

// wire returns the API's description of a root disk.
func (s *Store) wire(rec record, built bool) holt.Image {
	shown := holt.Image{
		Template: rec.Template, Built: built, Digest: rec.Digest, MinDiskMB: rec.DiskMB,
		Bytes: rec.Bytes + s.snapshotBytes(rec.Digest), BuiltAt: &rec.BuiltAt,
	}
	var c current
	if readJSON(s.templateFile(rec.Template), &c) == nil && c.Digest == rec.Digest && c.Unbooted {
		shown.Unbooted = &c.Shape
	}
	return shown
}

// image returns a root disk with its kernel and initramfs.
func (s *Store) image(rec record, built bool) (Image, error) {
	initrd, err := s.initrd(rec)
	if err != nil {
		return Image{}, err
	}
	dir := s.rootDir(rec.Digest)
	return Image{
		Image: s.wire(rec, built), Root: filepath.Join(dir, rootDisk), RootMB: rec.DiskMB,
		Kernel: filepath.Join(dir, kernelBoot), Initrd: initrd, Args: rec.Args, Units: rec.Units, Engine: rec.Engine,
	}, nil
}

// List returns the embedded templates, built or not, and all other images,
// sorted by template.
func (s *Store) List() ([]holt.Image, error) {
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	var out []holt.Image
	for _, rec := range records {
		dirs, err := s.held(rec.Digest)
		if err != nil {
			return nil, err
		}
		shown := s.wire(rec, s.isLatest(rec) && s.isCurrent(rec))
		shown.Computers, shown.Ready = len(dirs), s.ready(rec)
		out = append(out, shown)
	}
	for _, name := range Templates() {
		if !slices.ContainsFunc(out, func(i holt.Image) bool { return i.Template == name }) {
			out = append(out, holt.Image{Template: name})
		}
	}
	slices.SortStableFunc(out, func(a, b holt.Image) int { return strings.Compare(a.Template, b.Template) })
	return out, nil
}

// records returns the records of all root disks, newest first.
func (s *Store) records() ([]record, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "roots"))
	if err != nil {
		return nil, err
	}
	var out []record
	for _, e := range entries {
		rec, err := s.record(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // being deleted
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	slices.SortFunc(out, func(a, b record) int { return b.BuiltAt.Compare(a.BuiltAt) })
	return out, nil
}
