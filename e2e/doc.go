// Package e2e tells the product's stories with the real binaries: a data
// directory of its own, a daemon, the command line, and machines.
//
// It is not a place for unit tests. testdata/local holds the stories that run
// on the local engine in seconds; testdata/machine those that need real machines and images, which are gVisor's
// sandboxes, or virtual machines with HOLT_TEST_ENGINE=qemu; testdata/qemu those that need a virtual machine or the
// default engine, testdata/docker what needs Docker's image, testdata/browser what needs the
// image of a browser (with HOLT_SOAK=1 only). Every story ends with the same inspection: all
// workspaces check clean, and after `holt down` no process, mount or loop device of
// the story is left.
//
// HOLT_SOAK=1 runs the stories at their full counts; otherwise they run at
// the small ones. The counts are the environment variables of [Counts]. A soak has
// another seed each time and says it at the beginning; -seed repeats it.
package e2e
