package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// supervisor is systemd or another program that follows sd_notify(3). The zero value is none.
type supervisor struct {
	socket   string        // path, or @ and an abstract name
	watchdog time.Duration // it wants to hear of us at least so often; 0: it does not
}

// ownSupervisor returns who has started this process, and takes what says so out of the environment: what the
// daemon starts must not speak for it.
func ownSupervisor() supervisor {
	s := supervisor{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && usec > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		s.watchdog = time.Duration(usec) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return s
}

// tell sends assignments, one on each line.
func (s supervisor) tell(state string) error {
	if s.socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}

// watch tells it that this process lives, as long as alive returns in time and without an error. What hangs is
// ended by the supervisor, and computers keep running for the next daemon.
func (s supervisor) watch(ctx context.Context, log *slog.Logger, alive func(context.Context) error) {
	if s.socket == "" || s.watchdog == 0 {
		return
	}
	tick := time.NewTicker(s.watchdog / 3)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, s.watchdog/3)
		err := alive(bounded)
		cancel()
		if err == nil {
			err = s.tell("WATCHDOG=1")
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("the watchdog is not told that the daemon lives", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
