package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// previewShown is what preview answers.
type previewShown struct {
	holt.Preview
	Link *holt.PreviewLink `json:"link,omitempty"`
}

func (a *app) computerPreview() *cobra.Command {
	var public, private, remove bool
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "preview NAME PORT", Short: "Publish a port of a computer at a URL", Args: exactly(2),
		Long: `Prints a URL for a port of a computer: http://PORT-NAME.localhost:… for browsers on this machine, or
a name below --preview-domain of holt serve. It serves HTTP and WebSockets, whatever the computer's
network policy is. A request wakes a paused or stopped computer.

A preview is private: the URL is a link that works until it expires, for everyone who has it. Programs
send the link's token, or an API token, in the header X-Holt-Token. Most programs other than browsers
and curl do not resolve names below localhost; for them the command prints a second URL on this
machine's loopback. With --public everyone who knows or guesses the name can open it, and each visit
wakes the computer; unauthenticated visitors can keep it awake only part of the time. --private
makes it private again and closes connections of unauthenticated visitors.`,
		Example: `  holt computer preview einstein 3000
  holt computer preview einstein 3000 --expires 10m --json | jq -r .link.token
  holt computer preview einstein 8080 --public
  holt computer preview einstein 3000 --delete     # its links stop working`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := holt.ParsePort(args[1])
			if err == nil && (public && private || remove && (public || private)) {
				err = holt.Errorf(holt.InvalidArgument, "--public, --private and --delete exclude each other").WithHint("use only one of them, or none to get a link")
			}
			if err != nil {
				return err
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if remove {
				if err := c.Previews.Delete(cmd.Context(), args[0], port, ""); err != nil {
					return err
				}
				return a.deleted(args[0] + " " + args[1])
			}
			var spec holt.PreviewSpec
			if public || private {
				spec.Public = &public
			}
			one, err := c.Previews.Set(cmd.Context(), args[0], port, spec)
			if err != nil {
				return err
			}
			shown := previewShown{Preview: one}
			if !one.Public {
				link, err := c.Previews.Link(cmd.Context(), args[0], port, holt.PreviewLinkSpec{ExpiresInMS: int64((expires + time.Millisecond - 1) / time.Millisecond)})
				if err != nil {
					return err
				}
				shown.Link = &link
			}
			a.sayWhere(args[0], one)
			if a.wantsJSON() {
				return printJSON(a.Out, shown)
			}
			if shown.Link != nil {
				fmt.Fprintln(a.Out, shown.Link.URL)
				a.sayForPrograms(one, shown.Link.ProgramURL)
				a.say("private: this link works until %s", shown.Link.ExpiresAt.Local().Format("Jan 2 15:04"))
				return nil
			}
			fmt.Fprintln(a.Out, one.URL)
			a.sayForPrograms(one, one.ProgramURL)
			a.say("public: anyone who can reach this daemon can open it")
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&public, "public", false, "make it public")
	f.BoolVar(&private, "private", false, "make it private: only with a link or a token (default)")
	f.BoolVar(&remove, "delete", false, "delete it: its links stop working, and its connections are closed")
	f.DurationVar(&expires, "expires", 12*time.Hour, "how long the link works, at most 90 days")
	a.jsonFlag(cmd)
	return cmd
}

// sayForPrograms says how programs reach a preview whose name only browsers and curl resolve on every host.
func (a *app) sayForPrograms(p holt.Preview, programs string) {
	at, err := url.Parse(p.URL)
	switch {
	case err != nil || a.remote() || !strings.HasSuffix(at.Hostname(), ".localhost"):
	case programs != "":
		a.say("for programs (Node, Python, Java): %s", programs)
	default:
		a.say("for programs that do not resolve this name: connect to 127.0.0.1 and send the header Host: %s", at.Host)
	}
}

// sayWhere says whom the name of a preview does not lead to it.
func (a *app) sayWhere(name string, p holt.Preview) {
	at, err := url.Parse(p.URL)
	if err != nil || !a.remote() || !strings.HasSuffix(at.Hostname(), ".localhost") {
		return
	}
	a.say("only browsers on the daemon's machine can open it, because names below localhost resolve to the browser's own machine")
	a.say("from this machine: holt computer forward %s %d; for links that work everywhere, set preview-domain on the daemon", name, p.Port)
}

func (a *app) computerPreviews() *cobra.Command {
	cmd := &cobra.Command{
		Use: "previews NAME", Short: "List the previews of a computer", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Previews.List(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no previews; create one with: holt computer preview %s PORT", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, p := range all {
				who := "private"
				if p.Public {
					who = "public"
				}
				rows[i] = []string{fmt.Sprint(p.Port), who, cmp.Or(strings.Join(p.Domains, " "), "-"), cmp.Or(p.URL, "-")}
			}
			return printTable(a.Out, []string{"PORT", "WHO", "DOMAINS", "URL"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) computerDomain() *cobra.Command {
	return group("domain", "Custom domains for ports of a computer", a.domainAdd(), a.domainList(), a.domainDelete())
}

func (a *app) domainAdd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add NAME DOMAIN PORT", Short: "Publish a port of a computer at a domain", Args: exactly(3),
		Long: `Publishes a port of a computer at a domain whose DNS points to this daemon. The preview of that port
controls who can open it (holt computer preview NAME PORT --public). With holt serve --acme, the daemon
gets a certificate for the domain at the first request.

An admin, and everyone who uses the daemon's socket, can add any domain. Others need a DNS TXT record
holt=TENANT at _holt.DOMAIN, or at _holt. before a parent domain.`,
		Example:           `  holt computer domain add einstein app.example.com 3000`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := holt.ParsePort(args[2])
			if err != nil {
				return err
			}
			domain, err := holt.ParseDomain(args[1])
			if err != nil {
				return err
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			one, err := c.Previews.SetDomain(cmd.Context(), args[0], domain, holt.PreviewDomainSpec{Port: port})
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, one)
			}
			fmt.Fprintf(a.Out, "%s shows port %d of %s\n", one.Domain, one.Port, one.Computer)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) domainList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List the domains of a computer", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Previews.Domains(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no domains; add one with: holt computer domain add %s DOMAIN PORT", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, d := range all {
				rows[i] = []string{d.Domain, fmt.Sprint(d.Port), cmp.Or(d.URL, "-")}
			}
			return printTable(a.Out, []string{"DOMAIN", "PORT", "URL"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) domainDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME DOMAIN", Aliases: []string{"rm"}, Short: "Remove a domain from a computer", Args: exactly(2),
		ValidArgsFunction: a.completeSecond(a.computerNames, domainNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Previews.DeleteDomain(cmd.Context(), args[0], args[1], ""); err != nil {
				return err
			}
			return a.deleted(args[1])
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func domainNames(computer string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		all, _ := c.Previews.Domains(ctx, computer) // no daemon, no names
		for _, d := range all {
			out = append(out, d.Domain)
		}
		return out
	}
}
