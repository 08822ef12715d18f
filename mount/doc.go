// Package mount serves a workspace over FUSE: on a directory of the host, and
// to a guest over the file channel.
package mount
