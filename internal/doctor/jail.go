package doctor

import (
	"context"
	"fmt"

	"holt"
	"holt/internal/engine/jail"
)

// jail reports the users that QEMU and networks run as, and what a guest that escapes into them can read.
func (h host) jail(_ context.Context, opt Options) holt.Finding {
	if h.uid != 0 {
		return ok(fmt.Sprintf("no jails, since the daemon is not root: QEMU and computers' networks run as user id %d too. A guest that escapes from QEMU can read that user's files, so use a dedicated user", h.uid))
	}
	whose := "QEMU and network run"
	binary, err := h.look("qemu-system-x86_64")
	if err != nil {
		whose, binary = "network runs", "/bin/true"
	}
	try := opt.Jail
	if try == nil {
		try = jail.Check
	}
	var dirs []string
	for _, dir := range []string{opt.DataDir, opt.ImageDir} {
		if there, err := existing(dir); err == nil && dir != "" {
			dirs = append(dirs, there)
		}
	}
	if err := try(binary, dirs...); err != nil {
		return warn("no jails can be made here ("+err.Error()+"): QEMU and computers' networks run as root, and a guest that escapes from QEMU can read this host's files",
			"use Linux 5.12 or later, with the data and image directories on ext4, xfs or btrfs; or run the daemon as a dedicated user that may open /dev/kvm")
	}
	return ok("each computer's " + whose + " in jails, as users of their own that see only their own files")
}
