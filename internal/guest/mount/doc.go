// Package mount serves a workspace over FUSE: on a directory of the host
// ([Host]), and to a guest over the file channel ([Guest]). It is the only package
// that imports go-fuse.
//
// It is not the file system: package workspace has names, inodes, bytes and
// durability. It is not the guest's side either: package agent mounts there and
// forwards the messages.
//
// # Requests
//
// Both kinds of mount use go-fuse's raw API over one stateless type, tree: node
// ids are inode numbers and OPEN answers ENOSYS, so there are no handles, and
// another daemon can continue a guest's mount after this one is killed. The kernel
// caches names, attributes and pages without a time limit; changes made in another
// way are announced by a [Notifier].
//
// # A guest's messages
//
// The guest is hostile. admit checks each message before any other code sees it:
// allowed opcodes only, exact lengths, names without slashes, numbers within
// bounds. A message that no kernel sends ends the session. A valid message that is
// not supported is answered there. At most maxServed requests are in progress,
// each with at most 1 MiB in and out; further ones wait in the channel.
//
// The first message, INIT, is recorded with its answer before it is answered. A
// session that takes over replays it to a new protocol server and enforces the
// recorded terms. Then the agent resends the unanswered requests. Requests are
// numbered, and each change of the workspace records its number: the workspace
// answers a repeated change with the first answer. Other requests are simply
// repeated.
//
// # A host mount between two daemons
//
// A keeper process holds the descriptor of /dev/fuse and shared memory ([Keeper]).
// The daemon reads requests from the kernel directly into that memory, where they
// stay until they are answered, so that the next daemon finds the requests that a
// killed one had begun. They are numbered there, and executed once, like a guest's.
//
// # Lock order
//
// A session has only the lock of the frame writer, a Notifier its own; neither is
// held while the other or the workspace is called. The workspace calls a Notifier
// while it holds its own lock (see [workspace.Workspace.MarkNotified]).
//
// # Traps
//
//   - A process must not use a mount that it serves: if it is killed while one of
//     its threads waits for another, it never ends, nor does the mount. Another
//     process does what this package needs done in its own mounts (sync -f).
//   - Go's os.Open registers files with epoll, which sends FUSE a POLL, on a thread
//     that blocks its processor. A process that uses its own mount nevertheless (a
//     test, the agent in a guest) must first get the error of poll(2): see pollName.
//   - For the same reason such a process must not start a child whose directory or
//     program is in that mount: Go's fork blocks its processor until the child has
//     called execve, and the child waits for an answer. Start a helper elsewhere
//     that changes directory and executes the program.
//   - Children that outlive the daemon, such as machines, must not inherit
//     /dev/fuse, except a keeper, which watches for the mount's end.
//   - stat(2) of a dead mount succeeds from the kernel's cache; statfs(2) does not.
//   - Kernels send names of up to PATH_MAX and leave ENAMETOOLONG to the file system.
//   - The kernel drops a directory's attributes whenever an entry is added or
//     removed, and asks for its mode at the next access: one GETATTR per create.
//     With KILLPRIV_V2 it asks for security.capability once for each inode that it
//     created or read, not at each write.
package mount
