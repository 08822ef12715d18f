// Package sshd is the SSH door: `ssh einstein@host -p 2222`. It authenticates clients, decodes their requests, calls
// the computers with the caller in the context, and encodes the results. It does not check rights, and does not know
// other doors. The computer needs no sshd, no key and no network: everything goes through the guest agent.
//
// A user name is COMPUTER or COMPUTER.TENANT, and either with +LINUXUSER. A caller authenticates by a key on record
// (table ssh_key, [Keys]) or a token as password. [Gate.Connect] is for callers that the API has authenticated.
//
// Limits (docs/design/ssh.md): see limits.go. The memory of a channel is bounded by the window of x/crypto (2 MiB) and
// that of its stream to the guest (512 KiB).
//
// Lock order: no lock is taken, and nothing is called, while Gate.mu or conn.mu is held.
//
// Traps: x/crypto's mux is one goroutine: if the requests of one channel are not read, all channels of the connection
// stop, so a goroutine that reads requests must not block. Replies to global requests must be in order, so these
// requests are handled one after the other. A channel's Read returns io.EOF both for its end and for its close; after a
// close the channel of its requests is closed too.
package sshd
