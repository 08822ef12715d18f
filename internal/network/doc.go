// Package network runs the networks of machines. Each is a small process with a [netstack.Stack]
// that outlives the daemon, so that a restart of the daemon breaks no connection. [Serve] is
// that process; [Networks] is the daemon's side. The daemon does not see frames.
//
// # Format
//
// Files in the machine's directory:
//
//	network.lock          locked (flock) by the process, which inherits it
//	network.sock          frames; the machine listens, so a new process can connect
//	network-control.sock  HTTP API of the process, see control.go; 0600
//	own.sock              HTTP API of the daemon for http://holt.internal/; 0600
//	network.json          the policy; replaced atomically, before the process starts
//	network-secrets.json  secrets that the proxy adds to requests, and its CA; 0600, absent without secrets
//	network/network-names.json    names and their addresses, which are still valid after a pause or a kill
//	network/network-traffic.json  traffic by destination, of all processes and machines of the directory
//	network.log           log of the process; bounded
//
// The process ends when the machine's process does. If it is killed, the daemon or the next one
// starts another: the guest's connections are reset, and new ones work.
//
// Traps: the control socket listens before the process runs, so a call waits for the process and need not be
// retried. Process and daemon can be of different versions: calls and files only
// get additional fields.
package network
