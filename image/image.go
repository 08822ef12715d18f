package image

import (
	"context"
	"log/slog"

	"holt"
)

// Options say how a store builds. The zero value can list and delete.
type Options struct {
	// GuestBinary is the static guest agent, which becomes /init of the
	// initramfs.
	GuestBinary []byte
	// CertificateFile is the host's bundle of trusted certificates in PEM form;
	// empty: Debian's, /etc/ssl/certs/ca-certificates.crt.
	CertificateFile string
	// Log receives what happened; nil: nothing.
	Log *slog.Logger
}

// Image is a built template with the files an engine needs to boot it. The
// files are immutable and stay where they are until the image is deleted.
type Image struct {
	holt.Image
	Root   string   // raw ext4, the backing file of computers' overlays
	RootMB int      // virtual size of Root, MiB; the same as MinDiskMB
	Kernel string   // what to boot: bzImage
	Initrd string   // uncompressed newc cpio, for the store's guest binary
	Args   []string // kernel arguments
}

// Progress is one step of a build. Steps come in order; Fraction never falls.
type Progress struct {
	Stage    string  // a word for a person: waiting, kernel, packages, …
	Detail   string  // what it is busy with now; may be empty
	Fraction float64 // of the whole build, 0 to 1
}

// Store is a directory of built images. Several stores, in several
// processes, may share one directory.
type Store struct {
	dir string
	opt Options
}

// Open makes the directory if it is absent, removes what killed builds left
// there, and returns the store.
func Open(dir string, opt Options) (*Store, error) {
	return &Store{dir: dir, opt: opt}, nil
}

// Build returns the image that template's recipe denotes, building what is
// missing; it takes milliseconds when nothing is. template is the name of an
// embedded recipe or a path (with a slash) to a recipe file. Two builds of one
// template wait for one another. progress may be nil; it is called from one
// goroutine at a time.
//
// Errors: NotFound for an unknown template, InvalidArgument for a recipe that
// cannot be right, Unsupported when the host lacks tools (the hint names
// packages), OutOfSpace, Unavailable when packages cannot be fetched.
func (s *Store) Build(ctx context.Context, template string, progress func(Progress)) (Image, error) {
	return Image{}, holt.Errorf(holt.Unsupported, "images cannot be built yet")
}

// Get returns an image by template name, recipe path or root digest. A
// template stands for what its last build left, even when its recipe or the
// host has changed since (then Built is false: a Build would make a new one). The
// initramfs is made anew when the guest binary has changed.
//
// Errors: NotFound for an unknown template, and for one that was never built.
func (s *Store) Get(ctx context.Context, ref string) (Image, error) {
	return Image{}, holt.Errorf(holt.Unsupported, "images cannot be built yet")
}

// List returns every embedded template, built or not, and every other image
// that was built here, sorted by template.
func (s *Store) List() ([]holt.Image, error) {
	return nil, holt.Errorf(holt.Unsupported, "images cannot be listed yet")
}

// Delete removes a template's image, or the image with the given root digest.
// inUse tells whether a computer's disk stands on a root; it may be nil. An
// image in use is not removed: Conflict.
func (s *Store) Delete(ctx context.Context, ref string, inUse func(digest string) bool) error {
	return holt.Errorf(holt.Unsupported, "images cannot be deleted yet")
}

// Templates returns the names of the embedded recipes, sorted.
func Templates() []string { return []string{"base", "coding-agent"} }
