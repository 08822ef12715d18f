package image

import (
	"crypto/sha256"
	"log/slog"
	"path/filepath"
	"sync"

	"holt"
)

// Options are the options of a store. A store with the zero value can list and delete.
type Options struct {
	// GuestBinary is the static guest agent, which becomes /init of the
	// initramfs.
	GuestBinary []byte
	// CertificateFile is the host's bundle of trusted certificates in PEM form;
	// empty: Debian's, /etc/ssl/certs/ca-certificates.crt.
	CertificateFile string
	Log             *slog.Logger // nil: discards
}

// Image is a built template with the files an engine needs to boot it. The
// files are immutable and stay where they are until the image is deleted.
type Image struct {
	holt.Image
	Root   string   // raw ext4, the backing file of computers' overlays
	RootMB int      // virtual size of Root, MiB; the same as MinDiskMB
	Kernel string   // bzImage
	Initrd string   // uncompressed newc cpio, for the store's guest binary
	Args   []string // kernel arguments
	Units  []string // systemd units that must be active before a computer is ready
	Engine string   // that its computers need, such as qemu; "": any
}

// Steps is the number of steps of a build: kernel, packages, setup, disk.
const Steps = 4

// Progress is the progress of a build. Steps come in order; Fraction never decreases.
type Progress struct {
	Step     int     // 1 to Steps; 0: none, such as while it waits for another build
	Stage    string  // a word for a person: waiting, kernel, packages, …
	Detail   string  // a phrase for a person; may be empty
	Fraction float64 // of the whole build, 0 to 1
}

// Store is a directory of built images. Several stores, in several
// processes, may share one directory. Its methods may be called concurrently.
type Store struct {
	dir   string
	opt   Options
	log   *slog.Logger
	guest func() [sha256.Size]byte // of the guest binary
}

// Open makes the directory if it is absent, removes the temporary files of killed builds
// there, and returns the store. There is nothing to close.
func Open(dir string, opt Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, holt.Errorf(holt.InvalidArgument, "image directory: %w", err)
	}
	s := &Store{dir: dir, opt: opt, log: opt.Log, guest: sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256(opt.GuestBinary) })}
	if s.log == nil {
		s.log = discard()
	}
	if err := s.openDirs(); err != nil {
		return nil, err
	}
	s.sweep()
	return s, nil
}
