// Package sshd is the SSH door: `ssh einstein@host -p 2222`. It decodes what clients ask for, authenticates
// them, calls the computers with the caller in the context, and encodes what comes back. Who may do what it does not
// decide, and it knows no other door. There is no sshd in the computer, no key and no network: everything goes through the guest agent.
//
// A user name is COMPUTER or COMPUTER.TENANT, and either with +LINUXUSER. A caller shows a key that is on record (table ssh_key, [Keys]) or a token as
// password; or comes by a connection of the API's ([Gate.Connect]), which has authenticated it already.
//
// Bounds (docs/design/ssh.md): see limits.go. What a client may make the daemon hold is, for each channel, the window
// that x/crypto gives it (2 MiB) and that of its stream to the guest (512 KiB, what the guest has sent).
//
// Lock order: Gate.mu and conn.mu are leaves; nothing is called with one held.
//
// Traps: x/crypto's mux is one goroutine: whoever does not take requests of one channel stops all channels of that
// connection, so nothing that waits is done where requests are read. Replies to global requests go out in their order, so those are
// done one after the other. A channel's Read returns io.EOF for its end and for its close alike; the close is that its
// requests end.
package sshd
