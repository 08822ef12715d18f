package cli

import (
	"context"
	"log/slog"
	"time"

	"holt"
)

// Local is what needs more than the API: work on this machine that cmd/holt
// wires up from the packages that this one must not link. Every field is set.
type Local struct {
	Version string
	// Serve runs the daemon until ctx ends or someone says down.
	Serve func(ctx context.Context, opt ServeOptions) error
	// Network is the process that is the network of the machine in a directory.
	Network func(ctx context.Context, dir string) error
	// Keep is the process that keeps a mount while no daemon serves it, and listens on a socket.
	Keep func(socket string) error
	// Doctor examines this machine; engine and listen are the daemon's settings: its default engine, and its TCP
	// address, "" for none.
	Doctor func(ctx context.Context, at Place, engine, listen string) ([]holt.Finding, error)
	// Install installs Debian packages.
	Install func(ctx context.Context, packages []string, progress func(Progress)) error
	// CheckShape refuses what no computer of this machine can have.
	CheckShape func(shape holt.Shape) error
	// BuildImage builds a template's image, quickly if it is there already.
	BuildImage func(ctx context.Context, at Place, template string, progress func(Progress)) (holt.Image, error)
	// BootLater records in which shape the next daemon is to boot what was built.
	BootLater func(ctx context.Context, at Place, image holt.Image, shape holt.Shape) error
	// ListImages returns all templates, built or not.
	ListImages func(ctx context.Context, at Place) ([]holt.Image, error)
	// DeleteImage removes one image that no computer's disk stands on.
	DeleteImage func(ctx context.Context, at Place, ref string) (holt.Image, error)
	// PruneImages removes those that nothing needs any more.
	PruneImages func(ctx context.Context, at Place) ([]holt.Image, error)
}

// Place says where a daemon keeps its things.
type Place struct {
	DataDir  string // absolute
	ImageDir string // absolute
}

// ServeOptions configure a daemon.
type ServeOptions struct {
	Place
	Engine        string     // that computers have by default: auto, qemu, gvisor or local
	Log           string     // file that standard error is, to be turned over when it is large; "" for another
	Listen        string     // TCP address, "" for none
	SSHListen     string     // TCP address for SSH clients; "": localhost:2222 if that is free, "off": none
	S3Listen      string     // TCP address for clients of S3; "": localhost:4649 if that is free, "off": none
	S3Hosts       []string   // names of the S3 door, below which buckets are host names
	MetricsListen string     // loopback TCP address for metrics without a token, "" for none
	LogFormat     string     // text, json, or auto
	LogLevel      slog.Level // the least that is logged

	Hosts []string // names under which TCP callers may reach it, besides IP addresses and localhost

	Previews PreviewOptions

	Insecure    bool    // Listen and Previews.Listen may be reached from other machines, without TLS
	CallRate    float64 // calls a second that a token may make in the long run, and all of a tenant 10 times as many; 0: any number
	FailureRate float64 // calls a minute without a valid token that one address may make; 0: any number

	KeepLast int // how many of the newest automatic checkpoints stay
	KeepDays int // for how many days the newest of each stays

	Archive       string // directory of the archive's packs; "" for below the data directory
	ArchiveCache  int64  // most bytes of it kept on the local disk if it is elsewhere; below 0: none
	SnapshotCache int64  // most bytes of automatic snapshots, and of all that are in the archive; 0: an eighth of the disk

	Overcommit float64 // how many times the host's memory may be promised to computers

	Renew time.Duration // how long after its start templates are booted in the background whose snapshots are missing or out of date; 0: never
}

// imageSteps is how many steps it takes until computers are made of an image: four of a build, and the first boot.
const imageSteps = 5

// Progress is one step of long work.
type Progress struct {
	Step     int     // of an image: 1 to imageSteps; 0: none
	Stage    string  // name of the step: kernel, packages, …
	Detail   string  // for example the package that is being installed; may be empty
	Fraction float64 // of the whole, 0 to 1; never falls
}
