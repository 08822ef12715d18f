// Package network runs the networks of machines: for each a small process with a [netstack.Stack],
// which outlives the daemon as the machine does, so that a daemon that ends or is replaced cuts no
// connection. [Serve] is that process; [Networks] is the daemon's side of it. It decides nothing that
// a policy does not, and sees no frame.
//
// In the machine's directory are, beside the machine's own:
//
//	network.lock          locked as long as the process lives, which got it open
//	network.sock          of the machine: frames; it listens, so the process can join again
//	network-control.sock  of the process: HTTP, see control.go; 0600
//	own.sock              of the daemon: HTTP, what the computer asks at http://holt.internal/; 0600
//	network.json          the policy; replaced at once, so that a process that starts has it before the first frame
//	network-secrets.json  what its proxy adds to requests, and its CA; 0600, not there without any
//	network/network-names.json    which names addresses were given for, so that they count after a pause or a kill too
//	network/network-traffic.json  what went where up to now, over all processes and machines of the directory
//	network.log           what the process says; bounded
//
// The process ends when the machine's does, however that did. If it is killed instead the daemon, or
// the next one, starts another: connections of the guest end then with a reset, new ones work.
//
// Traps: the control socket listens before the process runs, so a call waits for it, and need not be
// repeated. A process may be of another version of this program than the daemon: calls and files only
// ever get more fields.
package network
