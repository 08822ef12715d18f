package doctor

import (
	"context"
	"fmt"

	"holt"
	"holt/internal/engine/jail"
)

// jail says as whom the programs run that guests speak to, and what one finds that breaks out into them.
func (h host) jail(_ context.Context, opt Options) holt.Finding {
	if h.uid != 0 {
		return ok(fmt.Sprintf("no jails, since the daemon is not root: QEMU and computers' networks run as user id %d too. A guest that broke out of QEMU would find what that user may read: let it be a user of holt's own", h.uid))
	}
	binary, err := h.look("qemu-system-x86_64")
	if err != nil {
		return warn("no jail was tried: QEMU is not installed", "")
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
		return warn("no jails can be made here ("+err.Error()+"): QEMU and computers' networks run as root, and a guest that broke out of QEMU would find this host's files",
			"use Linux 5.12 or later, and a data and an image directory on ext4, xfs or btrfs; or run the daemon as a user of its own that may open /dev/kvm")
	}
	return ok("each computer's QEMU and network run in jails, as users that nobody else is and that see their own files only")
}
