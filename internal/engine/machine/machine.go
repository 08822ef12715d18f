package machine

import (
	"context"
	"net"
)

// Ports are the byte channels into the guest that every engine offers. Packages
// channel, agent and mount define their protocols.
const (
	PortControl = "control"
	PortFiles   = "files"
)

// PortNetwork is the port for frames of the guest's network, for engines with
// [Capabilities].OwnNetwork: the unix socket [Socket] in the machine's
// directory accepts one connection at a time ([Dir.DialFrames]). Each message
// is one frame, preceded by its length (4 bytes, big endian), in a single
// write; the socket preserves message boundaries. The connection is the guest's
// only link; without one, the guest's frames are lost. [Machine.Dial] does not
// support this port; package network uses it.
const PortNetwork = "network"

// ArgNetwork is the kernel argument with the guest's address, gateway and
// resolver, such as holt.net=10.0.2.15/24,10.0.2.2,10.0.2.3. It is absent if
// the guest has no network of its own.
const ArgNetwork = "holt.net"

// Spec describes the machine to start. Paths are absolute.
type Spec struct {
	// ID names the machine in process lists and logs; it has no other meaning.
	ID string `json:"id"`
	// Dir is the machine's directory: sockets, record, logs. It is created with
	// mode 0700 if needed. One machine runs in it at a time.
	Dir string `json:"dir"`
	// Kernel and Initrd are booted by engines with a kernel of their own.
	Kernel string `json:"kernel,omitempty"`
	Initrd string `json:"initrd,omitempty"`
	// Args are additional kernel arguments. The engine adds those for its hardware:
	// console, reboot and panic behaviour, [ArgNetwork].
	Args []string `json:"args,omitempty"`
	// Disk is a root disk made by [Engine.CreateDisk]. Empty: none.
	Disk string `json:"disk,omitempty"`
	// CPUs is the number of virtual processors, at least 1.
	CPUs int `json:"cpus"`
	// MemoryMB is the guest's memory in MiB.
	MemoryMB int `json:"memory_mb"`
	// MaxCPUs and MaxMemoryMB are the limits up to which a running machine can grow
	// (see [Machine.Grow]); an engine may allow less. At or below the current size,
	// it cannot grow.
	MaxCPUs     int `json:"max_cpus,omitempty"`
	MaxMemoryMB int `json:"max_memory_mb,omitempty"`
	// Background machines get processor time that nothing else needs, as far as the
	// engine supports it.
	Background bool `json:"background,omitempty"`
	// Network asks for a network device, see [PortNetwork].
	Network bool `json:"network"`
	// Unserved: the workspace will not be served, as in a template. Otherwise an
	// engine may wait for that before the guest runs.
	Unserved bool `json:"unserved,omitempty"`
	// Restore is the directory of an [Image]: the machine continues from it instead
	// of booting. The fields other than ID, Dir, Disk and Unserved come from the image and
	// must be equal or absent. Disk is an overlay on the disk frozen with the
	// image. If it is larger, the guest is notified.
	Restore string `json:"restore,omitempty"`
}

// Base is an immutable disk image below root disks.
type Base struct {
	// Path is absolute. The file must neither change nor be removed while a disk lies over it.
	Path string
	// Format is "raw" (also when empty) or "qcow2".
	Format string
}

// Acceleration is how a guest's instructions are executed.
type Acceleration string

const (
	AccelKVM  Acceleration = "kvm"  // the processor
	AccelTCG  Acceleration = "tcg"  // QEMU's software emulation: works anywhere, 5 to 20 times slower
	AccelNone Acceleration = "none" // no virtual machine: host processes
)

// UseVirtual is the hint for operations that only virtual machines support.
const UseVirtual = "virtual machines can: holt down, then holt up --engine qemu; a computer stays with its engine, so make a new one there"

// Capabilities describe an engine's machines, so that the packages above need not know the engine.
type Capabilities struct {
	Acceleration Acceleration
	// Version is the version of the program that runs machines. A memory image can
	// be restored only by the same version.
	Version string
	// Isolated: the guest cannot reach the host's files, processes and memory.
	Isolated bool
	// OwnKernel: Spec.Kernel, Spec.Initrd and Spec.Args are used. Otherwise the
	// guest agent runs on the host's kernel, without an init system.
	OwnKernel bool
	OwnUser   bool // each machine's process has a user of its own and sees only its files
	// RootDisk: Spec.Disk is a real disk of the given size.
	RootDisk bool
	// OwnNetwork: Spec.Network is used. Otherwise the guest shares the host's network.
	OwnNetwork bool
	// NestedContainers: Docker and the like can run inside.
	NestedContainers bool
	// MemorySnapshot: memory can be saved and forked.
	MemorySnapshot bool
	// OverheadMB is the approximate host memory of a machine in addition to its
	// guest's, MiB. 0: machines have no memory of their own, and Spec.MemoryMB is
	// not enforced.
	OverheadMB int
	// Growing: processors, memory and disk can be added to a running machine.
	Growing bool
	// PowerButton: [Machine.PowerDown] works without the guest's agent.
	PowerButton bool
}

// Engine starts and finds machines. Its methods may be called concurrently, for
// different directories also by different processes.
type Engine interface {
	// Name is the engine of a computer as users see it: qemu-kvm, qemu-tcg, local.
	Name() string
	Capabilities() Capabilities
	// CreateDisk creates a root disk of sizeMB MiB at path, over base. It returns
	// AlreadyExists if path exists, InvalidArgument if sizeMB is smaller than base,
	// OutOfSpace if the host's disk is full.
	CreateDisk(ctx context.Context, path string, base Base, sizeMB int) error
	// DiskBase returns the base of a disk made by CreateDisk, whether or not a machine uses it.
	DiskBase(ctx context.Context, path string) (Base, error)
	// MergeDisk merges path and under, its base: afterwards path lies over the base
	// of under and has the same content, and under is removed. No machine may have
	// either open, and no other disk may lie over under. A failed or interrupted
	// merge has no visible effect and can be repeated; repeating a completed one is
	// no error. It returns OutOfSpace if the host's disk is full.
	MergeDisk(ctx context.Context, path, under string) error
	// FlattenDisk creates a disk at to, replacing any: it has the content of path,
	// and lies over the base of under, which is a disk somewhere below path. Both
	// stay unchanged. Machines may have them open if they do not write to them. The
	// caller then renames to over path: new machines open it, and running ones
	// reopen it, see [Machine.Reopen]. After an error there is nothing at to. It
	// returns OutOfSpace if the host's disk is full.
	FlattenDisk(ctx context.Context, path, under, to string) error
	// GrowDisk grows a root disk that no machine has open to sizeMB MiB. A disk of
	// at least that size is not changed. It returns OutOfSpace if the host's disk
	// is full.
	GrowDisk(ctx context.Context, path string, sizeMB int) error
	// Start starts a machine whose process outlives the caller. It returns Conflict
	// if a machine runs in that directory. A failed start leaves no process and no
	// socket. ctx limits the start, not the machine. The processors of a restored
	// machine run when Start returns. It returns Unsupported if the image needs
	// other hardware.
	Start(ctx context.Context, spec Spec) (Machine, error)
	// Adopt takes over the machine that runs in dir, whichever process started it.
	// The error is [ErrGone] if none runs, Conflict if another process controls it.
	// A machine whose start was interrupted is killed, and the error is ErrGone. A
	// machine whose snapshot was interrupted continues; [Machine.Disk] returns its
	// disk.
	Adopt(ctx context.Context, dir string) (Machine, error)
	// Ended returns how the last machine in dir ended, even if no daemon ran then.
	Ended(dir string) Ending
	// Strays lists the machines that run in directories under root and that this
	// Engine has neither started nor adopted.
	Strays(root string) ([]Stray, error)
}

// Machine is a running machine controlled by this process.
type Machine interface {
	// Dial connects to a port of the guest: [PortControl] or [PortFiles]. A port
	// has one connection at a time: dialling again closes the previous one. The
	// first bytes may be left over from that.
	Dial(ctx context.Context, port string) (net.Conn, error)
	// PowerDown asks the guest to shut down, as a power button does, and returns at
	// once. The guest may ignore it; Done reports the end.
	PowerDown(ctx context.Context) error
	// Snapshot makes an [Image] of the machine, which continues unless spec.End is set.
	// If it fails or ctx ends, the machine continues and the files are removed. A late
	// failure can leave the machine on the new disk: see Disk.
	//
	// Errors: Unsupported without [Capabilities].MemorySnapshot, Conflict while another
	// is being taken, OutOfSpace if the host's disk is full, ErrGone.
	Snapshot(ctx context.Context, spec SnapshotSpec) (SnapshotReport, error)
	// Reopen reopens the base of the root disk after its file was replaced by one
	// with the same content ([Engine.FlattenDisk]). The guest keeps running. After
	// an error the old files stay open. It returns Conflict while a snapshot is
	// being taken.
	Reopen(ctx context.Context) error
	// Grow adds processors, memory and disk to the running machine. It never removes anything.
	// It skips what cannot be added while the machine runs: memory other than whole blocks of
	// [GrowMB], and anything beyond the limits in its spec. After an error part may have been
	// added; see Shape. The guest decides whether it uses what was added.
	//
	// It waits for a running snapshot. Errors: Unsupported without
	// [Capabilities].Growing, OutOfSpace if the host's disk is full, ErrGone.
	Grow(ctx context.Context, to Shape) error
	// Shape returns the machine's current shape.
	Shape(ctx context.Context) (Shape, error)
	// Disk returns the root disk that the machine writes to: that of its spec or of
	// the last snapshot. Empty: none.
	Disk() string
	// Kill ends the machine and returns when it is gone. Killing a dead machine is no error.
	Kill() error
	// Release gives up control of the machine without ending it: it closes this
	// process's resources and waits for its goroutines. Afterwards Done is not
	// closed any more, and only Kill works.
	Release()
	// Done is closed when the machine has ended, for any reason.
	Done() <-chan struct{}
	// Console returns the path of the guest's console log. The log is bounded; the
	// oldest text is removed first.
	Console() string
	// PID returns the process id of the machine on the host.
	PID() int
}
