// Command holt is the one program: command line, daemon, and carrier of the
// guest agent. It holds no logic; it hands to package cli what that must not
// link.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"strings"

	"holt/internal/cli"
	"holt/internal/computer"
	"holt/internal/engine/gvisor/sandbox"
	"holt/internal/guest/mount"
	"holt/internal/network"
)

// release is what will be, or was, tagged. A package sets it as it is built: -ldflags "-X main.release=0.1.0-2".
var release = unpackaged

// unpackaged is the release of a build that is in no package.
const unpackaged = "0.1.0"

func main() {
	sandbox.Dispatch()
	// On Debian mkfs.ext4 and other tools are in directories that the PATH of ordinary users lacks.
	os.Setenv("PATH", strings.TrimPrefix(os.Getenv("PATH")+":/usr/sbin:/sbin", ":"))
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, cli.Local{
		Version: version(),
		Serve:   serve, Network: network.Serve, Keep: mount.Keep,
		Doctor:     examine,
		Install:    install,
		CheckShape: computer.CheckShape, BuildImage: buildImage, BootLater: bootLater,
		ListImages: listImages, DeleteImage: deleteImage, PruneImages: pruneImages,
	}))
}

// version returns the release and, as far as the build knows it, the commit.
func version() string {
	v := release
	info, _ := debug.ReadBuildInfo()
	if info == nil || release != unpackaged { // the package's says all
		return v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			v += "+" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			v += ".modified"
		}
	}
	return v
}
