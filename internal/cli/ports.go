package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) computerPorts() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ports NAME", Short: "List the listening ports of a computer", Args: exactly(1),
		Long: `Lists the listening TCP and UDP ports of a computer, with the process and the run, terminal or
service that it belongs to. The guest reports them. A paused or stopped computer is woken first.`,
		Example: `  holt computer ports einstein
  holt computer ports einstein --json | jq '.[].port'`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			var all []holt.Listener
			err = a.waitOn(c, args[0], "asking "+args[0], func() error {
				all, err = c.Ports.List(cmd.Context(), args[0])
				return err
			})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("nothing listens in %s", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, l := range all {
				pid := "-"
				if l.PID != 0 {
					pid = fmt.Sprint(l.PID)
				}
				rows[i] = []string{fmt.Sprint(l.Port), l.Protocol, l.Address, cmp.Or(l.Process, "-"), pid, cmp.Or(l.User, "-"), listensFor(l)}
			}
			return printTable(a.Out, []string{"PORT", "PROTOCOL", "ADDRESS", "PROCESS", "PID", "USER", "OF"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// listensFor says what a process that listens belongs to.
func listensFor(l holt.Listener) string {
	switch {
	case l.Run != "":
		return "run " + string(l.Run)
	case l.Terminal != "":
		return "terminal " + l.TerminalName
	case l.Service != "":
		return "service " + l.Service
	}
	return "-"
}

func (a *app) computerConnect() *cobra.Command {
	return &cobra.Command{
		Use: "connect NAME PORT|SOCKET", Short: "Connect standard input and output to a port of a computer", Args: exactly(2),
		Long: `Connects standard input and standard output to a TCP port or a unix socket (an absolute path) of a
computer, until the other side closes the connection. The end of standard input closes only the sending
direction. A paused or stopped computer is woken first.`,
		Example: `  holt computer connect einstein 5432
  printf 'GET /version HTTP/1.0\r\n\r\n' | holt computer connect einstein /run/docker.sock
  ssh -o ProxyCommand='holt computer connect einstein 22' agent@einstein`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := holt.ParsePortAddress(args[1])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			var far holt.PortConn
			err = a.waitOn(c, args[0], "connecting to "+args[0], func() error {
				far, err = c.Ports.Connect(ctx, args[0], to)
				return err
			})
			if err != nil {
				return err
			}
			return joinStreams(ctx, a.In, a.Out, far)
		},
	}
}

// joinStreams passes bytes between two streams and a connection, until the far side or ctx ends, and closes the connection.
func joinStreams(ctx context.Context, in io.Reader, out io.Writer, far holt.PortConn) error {
	defer far.Close()
	defer context.AfterFunc(ctx, func() { far.Close() })()
	go func() {
		switch read, write := pass(far, in); {
		case read != nil:
			far.Close()
		case write == nil: // else who reads learns why
			far.CloseWrite()
		}
	}()
	read, write := pass(out, far)
	if ctx.Err() != nil {
		return context.Canceled
	}
	return cmp.Or(read, write)
}

// passed is how much is passed on at once, bytes.
const passed = 32 << 10

// pass copies until the end of from, or an error of either.
func pass(to io.Writer, from io.Reader) (read, write error) {
	buf := make([]byte, passed)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return nil, err
			}
		}
		if err == io.EOF { // itself: what broke may be caused by one
			return nil, nil
		} else if err != nil {
			return err, nil
		}
	}
}
