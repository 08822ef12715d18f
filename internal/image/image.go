package image

import (
	"crypto/sha256"
	"log/slog"
	"path/filepath"
	"sync"

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
	Units  []string // of systemd, that have to be up before a computer is ready
}

// Steps is how many steps a build has: kernel, packages, setup, disk.
const Steps = 4

// Progress is one step of a build. Steps come in order; Fraction never falls.
type Progress struct {
	Step     int     // 1 to Steps; 0: none, as while it waits for another build
	Stage    string  // a word for a person: waiting, kernel, packages, …
	Detail   string  // what it is busy with now; may be empty
	Fraction float64 // of the whole build, 0 to 1
}

// Store is a directory of built images. Several stores, in several
// processes, may share one directory. Its methods may be called at the same time.
type Store struct {
	dir   string
	opt   Options
	log   *slog.Logger
	guest func() [sha256.Size]byte // of the guest binary
}

// Open makes the directory if it is absent, removes what killed builds left
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
