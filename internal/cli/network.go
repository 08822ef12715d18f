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
		Use: NetworkProcess + " DIR", Short: "Run the network process of a machine (used by the daemon)", Hidden: true, Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.local.Network(cmd.Context(), args[0]) },
	}
}

// KeeperProcess is the command that keeps a mount on the host while no daemon serves it. The daemon runs it.
const KeeperProcess = "mountkeeper"

func (a *app) keeperProcess() *cobra.Command {
	return &cobra.Command{
		Use: KeeperProcess + " SOCKET DIR", Short: "Hold a mount while no daemon serves it (used by the daemon)", Hidden: true, Args: exactly(2),
		RunE: func(_ *cobra.Command, args []string) error { return a.local.Keep(args[0]) },
	}
}

// networkFlags say what a computer may reach.
type networkFlags struct {
	egress string
	allow  []string
}

func (f *networkFlags) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.egress, "egress", "", "network policy: open (the internet), allow (only --allow destinations) or off (default: allow if --allow is given, else open)")
	cmd.Flags().StringArrayVar(&f.allow, "allow", nil, "allowed `DESTINATION`: a domain, *.domain, IPv4 address or network, optionally with :PORT; host.holt.internal:PORT is a port on this machine's loopback (repeatable)")
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
		Use: "network NAME", Short: "Show or change a computer's network policy, or show its traffic", Args: exactly(1),
		Long: `Shows the network policy of a computer, or changes it with --egress or --allow. A change takes effect
immediately and closes connections that are no longer allowed. --allow replaces the previous list;
without --egress it means --egress allow.

This machine's addresses, private networks and cloud metadata addresses are always blocked, unless
--allow lists their address or network; a host name is not enough. The package mirrors and the proxy
that this machine uses (Debian, npm, pip) count as the internet, even at a private address. Blocked
names are not resolved, and blocked connections are reset. With --egress allow or off, new processes
also get the variable HTTPS_PROXY; the proxy answers 403 with the reason, which npm, pip and git show.

--traffic shows bytes and connections by destination since the computer was created.`,
		Example: `  holt computer network einstein
  holt computer network einstein --allow registry.example.com --allow '*.debian.org:80'
  holt computer network einstein --egress open --allow host.holt.internal:5432
  holt computer network einstein --egress off
  holt computer network einstein --traffic`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if traffic && reach.given(cmd) {
				return holt.Errorf(holt.InvalidArgument, "--traffic excludes --egress and --allow").WithHint("use only one of them")
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
	cmd.Flags().BoolVar(&traffic, "traffic", false, "show traffic by destination")
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
