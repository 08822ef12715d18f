// Package workspace is the file system of a workspace: names, inodes, bytes,
// who wrote them, and what survives.
package workspace
