// Package channel carries bytes between the host and the agent in a guest
// over a line that neither side can trust to be fresh: a virtio-serial port
// or, for machines that are local processes, a unix socket. It also holds the
// frames of the file channel, which both sides speak.
//
// It is not a multiplexer (package agent puts one on top) and knows nothing
// of commands or files; it finds the start of a session, and that is all.
//
// # Why sessions have to be found
//
// A virtio-serial port outlives its host: a daemon is killed in the middle of
// a message, a machine is forked from a snapshot, and the next host's bytes
// follow what is left of the last one's. The end of a connection can be missed
// by the guest when the next one follows at once. So a host opens every
// connection with a preamble, and the guest answers it:
//
//	host → guest   68 KiB of zeros | magic, 16 bytes | nonce, 16 random bytes
//	guest → host   magic, 16 bytes | the same nonce
//
// After the preamble the host's bytes travel in packets of at most 64 KiB:
//
//	0x01 | length, 3 bytes, big-endian, 1 to 65,536 | payload
//
// A packet that was cut off swallows at most 64 KiB of the zeros of the next
// preamble; then a zero stands where a packet must begin, which is how the
// guest knows, without ever looking at payload, that a new session comes.
// So bulk costs no scanning and content can never be taken for a preamble.
// Only a guest that has just started, or lost its place, scans.
//
// Guest to host needs no packets: the host drops everything until the echo of
// a nonce that it has just made, and the guest stops the old session's writes
// before it echoes.
//
// # Lock order and traps
//
// Port: accept, then rd or wr; rd and wr are never held together. One
// goroutine reads a line at a time (rd): the session's consumer while there is
// a session, else Accept. A second reader would steal the preamble.
//
// A Line's Read returns io.EOF each time the host hangs up and must then be
// called again; it sleeps until there is a host. Session end is found by
// reading: a session whose consumer stops reading without closing it holds up
// the next one.
//
// The guest's kernel hands over at most 4 KiB a read and takes 32 KiB a write;
// see [Device].
package channel
