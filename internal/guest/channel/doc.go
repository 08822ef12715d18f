// Package channel carries bytes between the host and the agent in a guest
// over a line that may contain stale bytes: a virtio-serial port, for machines
// that are local processes a unix socket, for sandboxes a pair of named pipes. It
// also has the frames of the file channel.
//
// It is not a multiplexer (package agent puts one on top) and does not know
// commands or files. Its only task is to find the start of a session.
//
// # Why sessions have to be found
//
// A virtio-serial port outlives its host: if a daemon is killed in the middle of a
// message, or a machine is forked from a snapshot, the next host's bytes follow
// the rest of the last one's. The guest can miss the end of a connection when the
// next one follows at once. So a host begins every connection with a preamble,
// and the guest answers it:
//
//	host → guest   68 KiB of zeros | magic, 16 bytes | nonce, 16 random bytes
//	guest → host   magic, 16 bytes | the same nonce
//
// After the preamble the host sends packets of at most 64 KiB:
//
//	0x01 | length, 3 bytes, big-endian, 1 to 65,536 | payload
//
// An incomplete packet swallows at most 64 KiB of the zeros of the next preamble.
// Then there is a zero where a packet must begin, which tells the guest, without
// inspecting payload, that a new session begins. So bulk data is not scanned, and
// payload is never taken for a preamble. Only a guest that has just started, or
// is out of sync, scans.
//
// From guest to host no packets are needed: the host drops everything until the
// echo of its new nonce, and the guest stops the old session's writes before it
// echoes.
//
// # Lock order and traps
//
// Port: accept, then rd or wr; rd and wr are never held together. One goroutine
// reads a line at a time (rd): the session's consumer during a session, else
// Accept. A second reader would steal the preamble.
//
// A Line's Read returns io.EOF each time the host hangs up and must then be called
// again; it blocks until there is a host. A [Pipe] has no hang-ups. The end of a
// session is detected by reading: a session whose consumer neither reads nor
// closes it blocks the next one.
//
// The guest's kernel returns at most 4 KiB for a read and accepts 32 KiB for a
// write; see [Device].
package channel
