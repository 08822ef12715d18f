package mount

import (
	"bytes"
	"encoding/binary"
	"log"
	"log/slog"

	"github.com/hanwen/go-fuse/v2/fuse"

	"holt"
)

// capabilities are requested in addition to those of go-fuse.
//
//   - KILLPRIV_V2: the file system clears set-id bits and security.capability
//     itself, so that the kernel need not look up that attribute before every
//     write, only before the first after the inode was read.
//   - EXPLICIT_INVAL_DATA: the kernel keeps pages although the modification time
//     changes: every change by others is announced to it.
//   - POSIX_ACL, DONT_MASK: the kernel checks ACLs, which it reads as extended
//     attributes. A new file gets its directory's default ACL here, or else the
//     umask is applied.
//   - EXPORT_SUPPORT: file handles (open_by_handle_at, NFS) are resolved by node id
//     alone, with a LOOKUP of ".". Inode numbers are never reused, so all
//     generations are 0.
//   - SETXATTR_EXT: an ACL comes with whether its setter is in the file's group.
//   - READDIRPLUS_AUTO: a directory's entries come with attributes if they are
//     likely to be used.
//
// ATOMIC_O_TRUNC is off: with an OPEN that answers ENOSYS the truncation would be
// lost. ASYNC_DIO is off: after an asynchronous direct write FUSE does not drop
// pages filled by a concurrent buffered read, which would stay stale. PASSTHROUGH
// is off: unused, it would only forbid overlays. Locks are left to the kernel.
const capabilities = fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_EXPLICIT_INVAL_DATA |
	fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_CACHE_SYMLINKS |
	fuse.CAP_NO_OPENDIR_SUPPORT | fuse.CAP_POSIX_ACL | fuse.CAP_DONT_MASK | fuse.CAP_SETXATTR_EXT |
	fuse.CAP_EXPORT_SUPPORT

// maxBackground is the maximum of outstanding read-ahead and asynchronous write requests.
const maxBackground = 64

// protocolOptions returns the options of both kinds of mount.
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

// goFuseLog redirects go-fuse's log to l.
func goFuseLog(l *slog.Logger) *log.Logger {
	return slog.NewLogLogger(l.Handler(), slog.LevelWarn)
}

// initReply is the relevant part of the reply to INIT, struct fuse_init_out.
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

// terms returns the terms of a session that began with this reply.
func (r initReply) terms() terms {
	const page = 4096
	return terms{
		ready:     true,
		transfer:  min(max(r.maxWrite, uint32(r.maxPages)*page), maxTransfer),
		longXattr: r.flags&fuse.CAP_SETXATTR_EXT != 0,
	}
}

// restore returns options with which go-fuse answers the recorded INIT with
// exactly r's flags, whatever its current defaults are.
func (r initReply) restore(opt *fuse.MountOptions) *fuse.MountOptions {
	o := *opt
	o.MaxWrite = int(r.maxWrite)
	o.MaxBackground = int(r.maxBackground)
	o.ExtraCapabilities = r.flags
	o.DisabledCapabilities = ^r.flags
	return &o
}

// resume creates the protocol server of an existing mount: it replays the
// recorded INIT and drops the reply. It returns Unsupported if the reply would
// differ.
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
		return nil, terms{}, holt.Errorf(holt.Unsupported, "this version of holt does not support a mount with flags %#x", was.flags).
			WithHint("mount it again, or restart the computer")
	}
	return server, was.terms(), nil
}
