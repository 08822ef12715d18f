package machine

import (
	"context"
	"net"
)

// Ports are the names of the byte channels into the guest that every engine
// offers. What is spoken on them is the business of the packages channel,
// agent and mount.
const (
	PortControl = "control"
	PortFiles   = "files"
)

// PortNetwork is where engines with [Capabilities].OwnNetwork have the frames of a guest's network: the
// unix socket [Socket] of it in the machine's directory, which listens, with one connection at a time
// ([Dir.DialFrames]). On it each frame is behind its length (4 bytes, big endian), and is written with it at
// once, alone: the socket keeps apart what is written. Who is connected is the guest's only link; while
// nobody is, what the guest sends is lost. It is no port for [Machine.Dial]: package network speaks there.
const PortNetwork = "network"

// ArgNetwork is the name of the kernel argument by which an engine tells the
// guest its address, its gateway and its resolver, as in
// holt.net=10.0.2.15/24,10.0.2.2,10.0.2.3. It is absent when the guest has no
// network of its own.
const ArgNetwork = "holt.net"

// Spec says what machine to start. Paths are absolute.
type Spec struct {
	// ID names the machine in process lists and logs; it carries no meaning.
	ID string `json:"id"`
	// Dir is the machine's own directory: sockets, record, logs. It is made,
	// with mode 0700, if it is absent. One machine runs in it at a time.
	Dir string `json:"dir"`
	// Kernel and Initrd are booted by engines with a kernel of their own.
	Kernel string `json:"kernel,omitempty"`
	Initrd string `json:"initrd,omitempty"`
	// Args are kernel arguments. The engine adds those that follow from the
	// hardware it offers: console, reboot and panic behaviour, [ArgNetwork].
	Args []string `json:"args,omitempty"`
	// Disk is a root disk made by [Engine.CreateDisk]. Empty: none.
	Disk string `json:"disk,omitempty"`
	// CPUs is the number of virtual processors, at least 1.
	CPUs int `json:"cpus"`
	// MemoryMB is the guest's memory in MiB.
	MemoryMB int `json:"memory_mb"`
	// MaxCPUs and MaxMemoryMB are up to what the machine can grow while it runs (see
	// [Machine.Grow]); an engine may allow less. What is less than it has: it cannot.
	MaxCPUs     int `json:"max_cpus,omitempty"`
	MaxMemoryMB int `json:"max_memory_mb,omitempty"`
	// Background: the machine gets of the processors what nobody else wants, as far as the engine can see to it.
	Background bool `json:"background,omitempty"`
	// Network asks for a network device, see [PortNetwork].
	Network bool `json:"network"`
	// Restore is the directory of an [Image]: the machine goes on from there instead
	// of booting. All but ID, Dir and Disk then comes from the image, and must be the
	// same or absent. Disk is one that was laid over the disk frozen with the image;
	// the guest is told if it is larger than that.
	Restore string `json:"restore,omitempty"`
}

// Base is an immutable disk image that root disks are laid over.
type Base struct {
	// Path is absolute. The file must neither change nor go away while a disk
	// is laid over it.
	Path string
	// Format is "raw" (also when empty) or "qcow2".
	Format string
}

// Acceleration says what executes a guest's instructions.
type Acceleration string

// The accelerations.
const (
	AccelKVM  Acceleration = "kvm"  // the processor
	AccelTCG  Acceleration = "tcg"  // QEMU's software emulation: works anywhere, 5 to 20 times slower
	AccelNone Acceleration = "none" // no virtual machine: host processes
)

// UseVirtual is the hint where an engine cannot do what virtual machines can.
const UseVirtual = "virtual machines can: holt down, then holt up --engine qemu; a computer stays with its engine, so make a new one there"

// Capabilities says what an engine's machines can do, so that the packages
// above need not know which engine it is.
type Capabilities struct {
	Acceleration Acceleration
	// Version is of the program that runs machines. A memory image goes on in the same one only.
	Version string
	// Isolated: the guest cannot reach the host's files, processes and memory.
	Isolated bool
	// OwnKernel: Spec.Kernel, Spec.Initrd and Spec.Args are used. Without it the
	// guest agent runs on the host's kernel and no init system runs.
	OwnKernel bool
	OwnUser   bool // machines' processes are users of their own that see nothing but their files
	// RootDisk: Spec.Disk is a disk of its own with the size asked for.
	RootDisk bool
	// OwnNetwork: Spec.Network is obeyed. Without it the guest shares the host's network.
	OwnNetwork bool
	// NestedContainers: Docker and the like can run inside.
	NestedContainers bool
	// MemorySnapshot: memory can be saved and forked.
	MemorySnapshot bool
	// OverheadMB is what a machine takes of the host's memory beside its guest's, MiB, roughly; 0: its
	// machines have no memory of their own, and Spec.MemoryMB bounds nothing.
	OverheadMB int
	// Growing: processors, memory and disk can be added to a machine that runs.
	Growing bool
	// PowerButton: [Machine.PowerDown] reaches the guest without its agent.
	PowerButton bool
}

// Engine starts machines and finds them again. Its methods may be called at
// the same time, for different directories also from different processes.
type Engine interface {
	// Name is what users see as a computer's engine: qemu-kvm, qemu-tcg, local.
	Name() string
	Capabilities() Capabilities
	// CreateDisk makes a root disk of sizeMB MiB at path, laid over base. It
	// replaces nothing: AlreadyExists. InvalidArgument if sizeMB is smaller
	// than base, OutOfSpace if the host's disk is full.
	CreateDisk(ctx context.Context, path string, base Base, sizeMB int) error
	// DiskBase returns what a disk that CreateDisk made is laid over, whether a
	// machine uses it or not.
	DiskBase(ctx context.Context, path string) (Base, error)
	// MergeDisk makes one of two disks: path, which is laid over under, comes to lie
	// over what under lay over, shows what it did, and under is gone. No machine may
	// have either open, nor another disk be laid over under. A merge that fails, is
	// ended or killed has changed nothing that can be seen; it is begun anew, and
	// one that was done already is no error. OutOfSpace if the host's disk is full.
	MergeDisk(ctx context.Context, path, under string) error
	// FlattenDisk makes a disk at to, which is replaced: it shows what path does, and lies over what
	// under, a disk somewhere beneath path, lies over. Both stay as they are, and machines
	// that write to neither may have them open. Put in the place of path it is
	// what new machines open; those that run are told, see [Machine.Reopen]. An error
	// leaves nothing at to. OutOfSpace if the host's disk is full.
	FlattenDisk(ctx context.Context, path, under, to string) error
	// GrowDisk makes a root disk that no machine has open as large as sizeMB MiB; one that is
	// that large already stays as it is. OutOfSpace if the host's disk is full.
	GrowDisk(ctx context.Context, path string, sizeMB int) error
	// Start starts a machine whose process outlives the caller. Conflict if one
	// runs in that directory. A start that fails leaves no process and no
	// socket. ctx bounds the start, not the machine. The processors of a machine that
	// is restored run when Start returns; Unsupported if its image needs other hardware.
	Start(ctx context.Context, spec Spec) (Machine, error)
	// Adopt takes over the machine that runs in dir, whoever started it. The
	// error is [ErrGone] if none runs there, Conflict if another process controls
	// it. A machine whose start was never finished is ended, and gone. One whose
	// snapshot was never finished goes on: [Machine.Disk] says with which disk.
	Adopt(ctx context.Context, dir string) (Machine, error)
	// Ended says how the last machine in dir ended, which has. It works also if no daemon ran then.
	Ended(dir string) Ending
	// Strays lists the machines that run in directories under root and that
	// this Engine value has neither started nor adopted.
	Strays(root string) ([]Stray, error)
}

// Machine is a running machine under control of this process.
type Machine interface {
	// Dial connects to a port of the guest: [PortControl] or [PortFiles]. A
	// port carries one connection at a time: dialling again closes the
	// former one. The bytes that come first may be left over from it.
	Dial(ctx context.Context, port string) (net.Conn, error)
	// PowerDown asks the guest to end, as a power button does, and returns at
	// once. A guest may ignore it; Done tells.
	PowerDown(ctx context.Context) error
	// Snapshot makes an [Image] of the machine, which goes on unless told to end.
	// If it fails, or ctx ends, the machine goes on, and what was made is removed. Once
	// the disk has been changed a failure can leave the machine on the new one: Disk tells.
	//
	// Errors: Unsupported without [Capabilities].MemorySnapshot, Conflict while another
	// is being taken, OutOfSpace if the host's disk is full, ErrGone.
	Snapshot(ctx context.Context, spec SnapshotSpec) (SnapshotReport, error)
	// Reopen opens what the root disk lies over anew: a file there was replaced by one
	// that shows the same ([Engine.FlattenDisk]). The guest goes on all the while. An error leaves
	// open what was. Conflict while a snapshot is being taken.
	Reopen(ctx context.Context) error
	// Grow adds processors, memory and disk to the machine, which runs on. Nothing is ever taken
	// away: what it has already stays, as does what cannot be added while it runs, which is memory
	// beyond whole blocks of [GrowMB] and all beyond the most that its spec allows. An error
	// may leave part of it added; Shape tells. What the guest makes of it is its own business.
	//
	// It waits for a snapshot that is being taken. Errors: Unsupported without
	// [Capabilities].Growing, OutOfSpace if the host's disk is full, ErrGone.
	Grow(ctx context.Context, to Shape) error
	// Shape is what the machine has now.
	Shape(ctx context.Context) (Shape, error)
	// Disk is the root disk that the machine writes to: that of its spec, or of the
	// last snapshot. Empty: none.
	Disk() string
	// Kill ends the machine now and returns when all of it is gone. Killing a
	// dead machine is no error.
	Kill() error
	// Release lets go of the machine without ending it: it closes what this
	// process holds of it and waits for the goroutines that watch it. Afterwards
	// Done is not closed any more, and of the other methods only Kill works.
	Release()
	// Done is closed when the machine has ended, however it did.
	Done() <-chan struct{}
	// Console is the path of the log of what the guest wrote to its console.
	// The log is bounded; old text goes first.
	Console() string
	// PID is the host process that is the machine.
	PID() int
}
