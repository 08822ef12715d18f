package mount

import (
	"context"
	"log/slog"
	"net"

	"holt"
	"holt/workspace"
)

// GuestOptions say how to serve a guest.
type GuestOptions struct {
	// Writer turns the tag that came with a request, hostile text, into whom its
	// change is attributed to. Nil: nobody.
	Writer func(tag string) workspace.Writer
	Log    *slog.Logger // nil discards
}

// Guest serves one session of the file channel on conn, which was resynced,
// until conn ends or ctx does, and closes conn. It returns nil when the other
// side closed the channel or ctx ended, and an error with a code when the guest
// broke the protocol or its mount is not known. The next session takes over the
// mount where this one ended.
func Guest(ctx context.Context, ws *workspace.Workspace, conn net.Conn, opt GuestOptions) error {
	return holt.Errorf(holt.Unsupported, "serve guest mount: not built yet")
}
