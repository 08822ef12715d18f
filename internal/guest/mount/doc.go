// Package mount serves a workspace over FUSE: on a directory of the host
// ([Host]), and to a guest over the file channel ([Guest]). It is the only
// package that knows FUSE.
//
// It is not the file system: names, inodes, bytes and what survives are package
// workspace's. It is not the guest's side either: package agent mounts there
// and carries the messages.
//
// # Requests
//
// Both kinds of mount use go-fuse's raw API over one type, tree, which has no
// state: node ids are inode numbers and OPEN answers ENOSYS, so there are no
// handles, and another daemon can go on with a guest's mount where this one was
// killed. The kernel is told to believe names, attributes and pages for ever;
// what changes them on another way goes through a [Notifier].
//
// # A guest's messages
//
// The guest is hostile. A frame's message passes admit before anything else
// looks at it: allowed opcodes only, exact lengths, names without slashes,
// numbers within bounds. What no kernel sends ends the session. What honest
// kernels send but nobody serves is answered there. At most maxServed requests
// are in work, each with at most 1 MiB in and out; the rest waits in the channel.
//
// The first message, INIT, is recorded with its answer before it is answered.
// A session that takes over gives the recorded one to a new protocol server and
// holds the guest to the recorded terms. Then the agent sends again what was not
// answered. Its requests are numbered, and the number goes with each change
// into the workspace, which answers a repeated change as it did at first;
// everything else is simply done again.
//
// # A host mount between two daemons
//
// A keeper, a process of its own, holds the descriptor of /dev/fuse and a piece
// of memory ([Keeper]). The daemon reads requests from the kernel directly into
// that memory, where they stay until they are answered, so that the next daemon
// finds what a killed one had begun. They are numbered there, and done once, as a guest's are.
//
// # Lock order
//
// There is little to keep: a session has the frame writer's lock only, a Notifier
// its own, and neither is held while the other or the workspace is called. The
// workspace asks a Notifier under its own (see [workspace.Workspace.MarkNotified]).
//
// # Traps
//
//   - A process must not use a mount that it serves: killed while one of its
//     threads waits for another, it stays for ever, and the mount with it. What
//     this package must ask of its own mounts, another process asks (sync -f).
//   - Go's os.Open registers files with epoll, which asks FUSE to poll, on a
//     thread whose processor is not given to another goroutine meanwhile. A
//     process that uses its own mount all the same (a test, the agent in a
//     guest) must first get the refusal of poll(2): see pollName.
//   - For the same reason such a process must not start a child whose directory
//     or program lies in that mount: Go's fork keeps its processor until the
//     child has called execve, and the child waits for an answer. Start a helper
//     elsewhere that changes directory and executes the program.
//   - /dev/fuse must not be inherited by children that outlive the daemon, as
//     machines do, but a keeper, which looks for the mount's end.
//   - stat(2) of a dead mount succeeds from the kernel's memory; statfs(2) does
//     not.
//   - Kernels send names of up to PATH_MAX and leave ENAMETOOLONG to us.
//   - The kernel forgets a directory's attributes whenever a name in it comes or
//     goes, and asks for its mode at the next step into it: one GETATTR a create.
//     With KILLPRIV_V2 it asks for security.capability once for each inode it
//     made or read, not at each write.
package mount
