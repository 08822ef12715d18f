package mount

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"holt"
	"holt/internal/guest/channel"
	"holt/internal/workspace"
)

// GuestOptions configure [Guest].
type GuestOptions struct {
	// Writer returns the writer of a change for the request's tag, which is
	// untrusted text. It is called from one goroutine, for every request. Nil:
	// unknown writer.
	Writer func(tag string) workspace.Writer
	// Notifier announces changes by the API to the guest's kernel. It outlives
	// sessions: pass the same one to the next. Nil: the API changes nothing.
	Notifier *Notifier
	// Observe is called for each answered request with its operation, such as
	// LOOKUP, and its duration. May be nil.
	Observe func(op string, took time.Duration)
	Log     *slog.Logger // nil discards
}

const (
	helloWait = 30 * time.Second // an emulated guest is slow
	// lastWords is how long an ending session may take to send the answers of
	// completed requests. The next session requests lost ones again.
	lastWords = 2 * time.Second
	// maxRefused is how many mounts may be refused in one session. An agent makes a
	// new one each time; each costs a log line.
	maxRefused = 8
)

// Guest serves one session of the file channel on conn, which was resynced, until
// conn or ctx ends; it closes conn and returns when all goroutines of the session
// have ended. Only then may the next session of the same workspace begin; it takes
// over where this one ended.
//
// It returns nil when the other side closed the channel or ctx ended, InvalidArgument
// or Corrupt when the guest violated the protocol (or has another version of it),
// Timeout when the guest sends no hello, Conflict when a host mount uses the
// workspace, and Internal when a request failed because of a bug. The caller logs
// the error, and waits a little before it serves the guest again.
//
// A mount that is unknown, or whose terms this program does not support, is
// refused with a log line; the guest then makes a new one.
func Guest(ctx context.Context, ws *workspace.Workspace, conn net.Conn, opt GuestOptions) error {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Notifier == nil {
		opt.Notifier = &Notifier{}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer conn.Close()
	defer cancel(nil)
	opt.Notifier.begin()
	s := newSession(ctx, cancel, ws, conn, opt)
	defer context.AfterFunc(ctx, s.hurry)()
	err := s.run()
	s.cancel(err)
	s.working.Wait()
	s.notifying.Wait()
	var e *holt.Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	opt.Log.Debug("file channel session ended", "err", err)
	return nil
}

// hurry unblocks the connection: reads at once, writes after the time for pending answers.
func (s *session) hurry() {
	s.conn.SetReadDeadline(time.Unix(1, 0))
	s.conn.SetWriteDeadline(time.Now().Add(lastWords))
}

// run serves one mount after the other: a guest whose mount was refused makes
// another, and sends hello again.
func (s *session) run() error {
	s.conn.SetReadDeadline(time.Now().Add(helloWait))
	hello, err := s.hello()
	s.conn.SetReadDeadline(time.Time{})
	if s.ctx.Err() != nil { // hurry may have run before
		s.hurry()
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		return holt.Errorf(holt.Timeout, "the guest has begun a session, but has not sent hello for %v", helloWait)
	}
	for refused := 0; err == nil; {
		err = s.begin(hello)
		switch holt.CodeOf(err) {
		case "":
			hello, err = s.serve()
		case holt.NotFound, holt.Unsupported:
			if refused++; refused > maxRefused {
				return holt.Errorf(holt.InvalidArgument, "the guest repeatedly sends hello for mounts that cannot be served: %w", err)
			}
			s.log.Warn("guest has to remount its workspace", "err", err)
			hello, err = s.hello()
		}
	}
	return err
}

// begin finds or opens the epoch of the mount in the hello, and answers.
func (s *session) begin(hello channel.Hello) error {
	if err := s.attach(hello); err != nil {
		s.frames.Write(channel.FrameWelcome, make([]byte, len(hello.Mount))) // no mount: the guest makes a new one
		return err
	}
	if err := s.frames.Write(channel.FrameWelcome, hello.Mount[:]); err != nil {
		return err
	}
	var err error
	s.notifyOnce.Do(func() {
		// Queued changes are announced before the guest's first answer, up to the limit.
		if _, err = s.notifier.drain(channel.MaxNotices, s.notify); err == nil {
			s.notifying.Go(func() { s.send(s.notifier.run(s.ctx, channel.MaxNotices, s.notify)) })
		}
	})
	return err
}

// hello reads the next frame, which must be a hello. Only acknowledgements of
// notifications for the previous mount may precede it.
func (s *session) hello() (channel.Hello, error) {
	for {
		kind, payload, err := s.requests.Next(nil)
		switch {
		case err != nil:
		case kind == channel.FrameHello:
			return parseHello(payload)
		case kind == channel.FrameTaken:
			err = s.taken(payload)
		default:
			err = holt.Errorf(holt.InvalidArgument, "the guest sent a frame of kind %d before its hello", kind)
		}
		if err != nil {
			return channel.Hello{}, err
		}
	}
}

func parseHello(payload []byte) (channel.Hello, error) {
	hello, err := channel.ParseHello(payload)
	if err == nil && hello.Version != channel.FrameVersion {
		err = holt.Errorf(holt.InvalidArgument, "the guest's file channel has version %d, this holt supports %d", hello.Version, channel.FrameVersion).
			WithHint("rebuild the image and restart the computer")
	}
	return hello, err
}

// attach finds the epoch of the mount, or opens one for a fresh mount. A guest
// has one mount: a fresh one means that the kernels of all others are gone.
func (s *session) attach(hello channel.Hello) error {
	known := false
	var gone []workspace.Epoch
	for _, e := range s.ws.Epochs() {
		switch {
		case e.Kind == workspace.HostMount:
			return holt.Errorf(holt.Conflict, "the workspace is mounted on the host").
				WithHint("unmount it there, or mount it read-only")
		case e.ID == hello.Mount:
			known = true
		default:
			gone = append(gone, e.Epoch)
		}
	}
	if !known && !hello.Fresh {
		return holt.Errorf(holt.NotFound, "the guest continues mount %x, which is unknown", hello.Mount).
			WithHint("the guest makes a new mount; files that are open in the old one are lost")
	}
	if known {
		err := catchUp(s.ctx, s.ws, s.notifier)
		if err != nil {
			return err
		}
	} else if err := s.notifier.complete(nil); err != nil { // its kernel has nothing cached
		return err
	}
	for _, e := range gone {
		if err := s.ws.EndEpoch(e); err != nil {
			return holt.Errorf(holt.Internal, "end the epoch of a mount that is gone: %w", err)
		}
	}
	epoch, _, err := s.ws.BeginEpoch(hello.Mount, workspace.GuestMount)
	if err != nil {
		return holt.Errorf(holt.Internal, "begin the epoch of a mount: %w", err)
	}
	return s.restore(epoch)
}

// catchUp queues changes that the kernel may have missed, if the queue is not
// complete, mainly after a daemon was killed.
func catchUp(ctx context.Context, ws *workspace.Workspace, n *Notifier) error {
	if n.isWhole() {
		return nil
	}
	stale, err := ws.Unnotified(ctx)
	if err == nil {
		changes := make([]Change, len(stale))
		for i, one := range stale {
			changes[i] = Change{Ino: one.Ino, Name: one.Name}
		}
		err = n.complete(changes)
	}
	if holt.CodeOf(err) == holt.TooMany {
		err = holt.Errorf(holt.NotFound, "the kernel of a mount missed too many changes: %w", err)
	}
	if err != nil {
		return err
	}
	ws.MarkNotified(n.Told)
	return nil
}
