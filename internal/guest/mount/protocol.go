package mount

import (
	"bytes"
	"encoding/binary"
	"log"
	"log/slog"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt"
)

// capabilities are asked for beyond what go-fuse asks for itself.
//
//   - KILLPRIV_V2: the file system clears set-id bits and security.capability
//     itself, so that the kernel need not look for that attribute before
//     every write, only before the first after the inode was read.
//   - EXPLICIT_INVAL_DATA: pages stay although the modification time moved:
//     nobody changes a file behind the kernel's back without telling it.
//   - POSIX_ACL, DONT_MASK: the kernel checks ACLs, which it reads as extended
//     attributes. A new name gets its directory's default ACL here, and the umask
//     where there is none.
//   - EXPORT_SUPPORT: a file handle (open_by_handle_at, NFS) is found by its node
//     id alone, with a LOOKUP of ".". Inode numbers are never reused, so that all
//     generations are 0.
//   - SETXATTR_EXT: with an ACL comes whether its setter is in the file's group.
//   - READDIRPLUS_AUTO: attributes come with a directory's names when they are
//     likely to be wanted.
//
// ATOMIC_O_TRUNC stays off: with an OPEN that answers ENOSYS it would lose the
// truncation. ASYNC_DIO stays off: when an asynchronous direct write ends, FUSE
// does not drop the pages that a buffered read has filled meanwhile, and they
// would stay as they were before it. PASSTHROUGH stays off: unused, it would only forbid overlays.
// Locks stay with the kernel.
const capabilities = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_EXPLICIT_INVAL_DATA |
	fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_CACHE_SYMLINKS |
	fuse.CAP_NO_OPENDIR_SUPPORT | fuse.CAP_POSIX_ACL | fuse.CAP_DONT_MASK | fuse.CAP_SETXATTR_EXT |
	fuse.CAP_EXPORT_SUPPORT

// maxBackground is how many reads ahead and asynchronous writes a kernel may
// have outstanding.
const maxBackground = 64

// protocolOptions are what both kinds of mount negotiate.
func protocolOptions(l *slog.Logger) *fuse.MountOptions {
	return &fuse.MountOptions{
		Name:                     "holt",
		MaxWrite:                 maxTransfer,
		MaxBackground:            maxBackground,
		DisableSplice:            true,
		ExplicitDataCacheControl: true,
		ExtraCapabilities:        capabilities,
		DisabledCapabilities:     fuse.CAP_PASSTHROUGH | fuse.CAP_ATOMIC_O_TRUNC,
		Logger:                   goFuseLog(l),
	}
}

// goFuseLog lets go-fuse's lines appear in ours.
func goFuseLog(l *slog.Logger) *log.Logger {
	return slog.NewLogLogger(l.Handler(), slog.LevelWarn)
}

// initReply is what matters of the reply to INIT, struct fuse_init_out.
type initReply struct {
	flags         uint64
	maxBackground uint16
	maxWrite      uint32
	maxPages      uint16
}

const initReplySize = outHeaderSize + 64

func parseInitReply(b []byte) (initReply, error) {
	le := binary.LittleEndian
	if len(b) != initReplySize || le.Uint32(b) != initReplySize || le.Uint32(b[4:]) != 0 {
		return initReply{}, holt.Errorf(holt.Corrupt, "the recorded INIT reply is malformed (%d bytes)", len(b))
	}
	b = b[outHeaderSize:]
	return initReply{
		flags:         uint64(le.Uint32(b[12:])) | uint64(le.Uint32(b[32:]))<<32,
		maxBackground: le.Uint16(b[16:]),
		maxWrite:      le.Uint32(b[20:]),
		maxPages:      le.Uint16(b[28:]),
	}, nil
}

// terms returns what a session that began with this reply is held to.
func (r initReply) terms() terms {
	const page = 4096
	return terms{
		ready:     true,
		transfer:  min(max(r.maxWrite, uint32(r.maxPages)*page), maxTransfer),
		longXattr: r.flags&fuse.CAP_SETXATTR_EXT != 0,
	}
}

// restore returns options under which go-fuse answers the INIT that r once
// answered with exactly r's flags again, whatever it would choose today.
func (r initReply) restore(opt *fuse.MountOptions) *fuse.MountOptions {
	o := *opt
	o.MaxWrite = int(r.maxWrite)
	o.MaxBackground = int(r.maxBackground)
	o.ExtraCapabilities = r.flags
	o.DisabledCapabilities = ^r.flags
	return &o
}

// resume makes the protocol server that a mount began with, by giving it the
// recorded INIT and dropping its reply. Unsupported if it would promise
// something else.
func resume(fs fuse.RawFileSystem, opt *fuse.MountOptions, req, reply []byte) (*fuse.ProtocolServer, terms, error) {
	was, err := parseInitReply(reply)
	if err != nil {
		return nil, terms{}, err
	}
	server := fuse.NewProtocolServer(fs, was.restore(opt))
	now := make([]byte, smallReply)
	n, _ := server.HandleRequest([][]byte{bytes.Clone(req)}, [][]byte{now})
	is, err := parseInitReply(now[:n])
	if err != nil || is.flags != was.flags {
		return nil, terms{}, holt.Errorf(holt.Unsupported, "this version of holt does not serve a mount with flags %#x", was.flags).
			WithHint("mount it again, or restart the computer")
	}
	return server, was.terms(), nil
}
