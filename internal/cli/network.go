package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// NetworkProcess is the command that is the network of a machine. The daemon runs it.
const NetworkProcess = "netstack"

func (a *app) networkProcess() *cobra.Command {
	return &cobra.Command{
		Use: NetworkProcess + " DIR", Short: "Be the network of the machine in a directory, as its daemon wants", Hidden: true, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.local.Network(cmd.Context(), args[0]) },
	}
}

// KeeperProcess is the command that keeps a mount on the host while no daemon serves it. The daemon runs it.
const KeeperProcess = "mountkeeper"

func (a *app) keeperProcess() *cobra.Command {
	return &cobra.Command{
		Use: KeeperProcess + " SOCKET DIR", Short: "Keep the mount on a directory while no daemon serves it", Hidden: true, Args: exactly(2),
		RunE: func(_ *cobra.Command, args []string) error { return a.local.Keep(args[0]) },
	}
}

// networkFlags say what a computer may reach.
type networkFlags struct {
	egress string
	allow  []string
}

func (f *networkFlags) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.egress, "egress", "", "what it may reach: open (the internet), allow (what --allow names) or off (default: allow if --allow is given, else open)")
	cmd.Flags().StringArrayVar(&f.allow, "allow", nil, "a `DESTINATION`: a domain, *.domain, IPv4 address or network that it may reach, each with :PORT or without; host.holt.internal:PORT is a port of this machine's loopback (repeatable)")
	a.completeFlag(cmd, "egress", func(context.Context, *client.Client) []string { return []string{"open", "allow", "off"} })
}

func (f *networkFlags) given(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("egress") || cmd.Flags().Changed("allow")
}

// policy is what the flags make of what was before; nil if none is given.
func (f *networkFlags) policy(cmd *cobra.Command, before holt.NetworkPolicy) *holt.NetworkPolicy {
	if !f.given(cmd) {
		return nil
	}
	allow := f.allow
	if cmd.Flags().Changed("allow") {
		allow = slices.DeleteFunc(append([]string{}, allow...), func(s string) bool { return s == "" })
	}
	return policyOver(before, holt.Egress(f.egress), allow)
}

// policyOver is what an egress ("": not given) and destinations (nil: not given) make of what was before.
func policyOver(p holt.NetworkPolicy, egress holt.Egress, allow []string) *holt.NetworkPolicy {
	if allow != nil {
		p.Egress, p.Allow = holt.EgressAllow, allow
	}
	p.Egress = cmp.Or(egress, p.Egress)
	return &p
}

func (a *app) computerNetwork() *cobra.Command {
	var reach networkFlags
	var traffic bool
	cmd := &cobra.Command{
		Use: "network NAME", Short: "Show or change what a computer may reach, or show what it did", Args: exactly(1),
		Long: `Shows what a computer may reach outside of itself, or with --egress or --allow
changes it, at once: connections that are not allowed any more are cut off. --allow
replaces what was allowed before; given alone it means --egress allow.

Whatever the policy, this machine's own addresses, private networks and a cloud's
metadata addresses are out of reach unless --allow names their network or address: a
name does not do. Where this machine itself gets packages from (its mirrors of Debian, npm
and pip, and its proxy) counts as the internet, also at a private address. What is refused
is refused at once: a name is not known, a connection is reset. With --egress allow or off
what begins in the computer is told of its proxy as well (HTTPS_PROXY), which answers 403
and says why; npm, pip and git pass that on.

--traffic shows bytes and connections by destination since the computer was made.`,
		Example: `  holt computer network einstein
  holt computer network einstein --allow registry.example.com --allow '*.debian.org:80'
  holt computer network einstein --egress open --allow host.holt.internal:5432
  holt computer network einstein --egress off
  holt computer network einstein --traffic`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if traffic && reach.given(cmd) {
				return holt.Errorf(holt.InvalidArgument, "--traffic shows, --egress and --allow change").WithHint("give one of them")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if traffic {
				t, err := c.Networks.Traffic(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.printTraffic(t)
			}
			p, err := c.Networks.Get(cmd.Context(), args[0])
			if next := reach.policy(cmd, p); err == nil && next != nil {
				p, err = c.Networks.Set(cmd.Context(), args[0], *next)
			}
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, p)
			}
			return printTable(a.Out, nil, [][]string{{"egress", string(p.Egress)}, {"allow", cmp.Or(strings.Join(p.Allow, ", "), "-")}})
		},
	}
	reach.add(a, cmd)
	cmd.Flags().BoolVar(&traffic, "traffic", false, "show what it sent and received")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) printTraffic(t holt.NetworkTraffic) error {
	if a.wantsJSON() {
		return printJSON(a.Out, t)
	}
	row := func(name string, t holt.Traffic) []string {
		return []string{visible(name), size(t.Sent), size(t.Received), fmt.Sprint(t.Connections), fmt.Sprint(t.Open), fmt.Sprint(t.Refused)}
	}
	var rows [][]string
	for _, one := range t.Destinations {
		rows = append(rows, row(cmp.Or(one.Destination, "(others)"), one))
	}
	rows = append(rows, row("(all)", holt.Traffic{Sent: t.Sent, Received: t.Received, Connections: t.Connections, Open: t.Open, Refused: t.Refused}))
	return printTable(a.Out, []string{"DESTINATION", "SENT", "RECEIVED", "CONNECTIONS", "OPEN", "REFUSED"}, rows)
}
