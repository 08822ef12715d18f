package cli

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// shownContext is what is said of a context: never its token.
type shownContext struct {
	Name        string `json:"name"`
	Server      string `json:"server"`
	Current     bool   `json:"current"`
	HasToken    bool   `json:"has_token"`
	HasCA       bool   `json:"has_ca"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

func showContext(t target, current bool) shownContext {
	out := shownContext{Name: t.name, Server: t.Server, Current: current, HasToken: t.Token != "", HasCA: t.CA != "", Fingerprint: t.Fingerprint}
	if !t.remote() {
		out.Server = "unix:" + t.socket
	}
	return out
}

func (a *app) contextCommand() *cobra.Command {
	cmd := group("context", "Named servers that this command can call",
		a.contextAdd(), a.contextUse(), a.contextList(), a.contextShow(), a.contextDelete())
	cmd.Long = `A context is a named server with its token. The context local is the daemon on this machine and
needs neither. holt calls the first of these that is set:

  --data-dir DIR                      the daemon of that directory, on this machine
  --context NAME
  HOLT_CONTEXT
  HOLT_SERVER, with HOLT_TOKEN        a server without a name, and HOLT_CA_FILE
  HOLT_SOCKET, HOLT_DATA_DIR          a daemon on this machine
  the current context                 holt context use NAME
  local

Contexts are stored in $XDG_CONFIG_HOME/holt/contexts.json (default: ~/.config). holt refuses the
file if other users can read it. Tokens are never shown.`
	return cmd
}

func (a *app) contextAdd() *cobra.Command {
	var s endpoint
	var tokenFile, caFile string
	var tokenStdin, replace, use bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a server", Args: exactly(1),
		Long: `Adds a named server. The token is read from a file or from standard input, so that it does not get
into the shell's history. To test the context: holt --context NAME version`,
		Example: `  holt context add prod --server https://holt.example.com:4646 --token-file token
  ssh box cat /var/lib/holt/token | holt context add box --server https://box:4646 --token-stdin --ca-file box.pem --use`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := holt.ParseName(args[0])
			if err != nil {
				return err
			}
			if name == localContext {
				return holt.Errorf(holt.InvalidArgument, "the name %s is reserved for the daemon on this machine", localContext).WithHint("use another name")
			}
			if err := a.readServer(&s, tokenFile, tokenStdin, caFile); err != nil {
				return err
			}
			t, err := checkServer(s, name)
			if err != nil {
				return err
			}
			var current bool
			err = a.changeContexts(func(c *contexts) error {
				if _, there := c.Contexts[name]; there && !replace {
					return holt.Errorf(holt.AlreadyExists, "the context %s already exists", name).WithHint("replace it with --replace")
				}
				c.Contexts[name] = s
				if use {
					c.Current = name
				}
				current = c.Current == name
				return nil
			})
			if err != nil {
				return err
			}
			if inTheClear(t) {
				a.say("warning: the token is sent to %s unencrypted; use https:// unless you trust the network", visible(s.Server))
			}
			if a.wantsJSON() {
				return printJSON(a.Out, showContext(t, current))
			}
			fmt.Fprintf(a.Out, "%s is %s\n", name, visible(s.Server))
			if !current {
				a.say("use it with: holt context use %s, or --context %s", name, name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Server, "server", "", "https://HOST:PORT, http://HOST:PORT, or unix:/PATH of a socket")
	f.StringVar(&tokenFile, "token-file", "", "a file with the token")
	f.BoolVar(&tokenStdin, "token-stdin", false, "read the token from standard input")
	f.StringVar(&caFile, "ca-file", "", "PEM file with additional root certificates for the server")
	f.StringVar(&s.Fingerprint, "fingerprint", "", "SHA-256 of the server's certificate, hexadecimal; the certificate may then be self-signed")
	f.BoolVar(&replace, "replace", false, "replace an existing context")
	f.BoolVar(&use, "use", false, "make it the current context")
	a.jsonFlag(cmd)
	return cmd
}

// readServer reads what a context has from files.
func (a *app) readServer(s *endpoint, tokenFile string, tokenStdin bool, caFile string) error {
	var token []byte
	var err error
	switch {
	case s.Server == "":
		return holt.Errorf(holt.InvalidArgument, "--server is missing").WithHint("add --server https://HOST:PORT, or --server unix:/PATH")
	case tokenFile != "" && tokenStdin:
		return holt.Errorf(holt.InvalidArgument, "--token-file and --token-stdin exclude each other").WithHint("use only one of them")
	case tokenFile != "":
		token, err = readSmall(tokenFile)
	case tokenStdin:
		token, err = io.ReadAll(io.LimitReader(a.In, mostSmall))
	}
	if err != nil {
		return err
	}
	s.Token = string(bytes.TrimSpace(token))
	if caFile != "" {
		ca, err := readSmall(caFile)
		if err != nil {
			return err
		}
		s.CA = string(ca)
	}
	return nil
}

// checkServer refuses what could never be called.
func checkServer(s endpoint, name string) (target, error) {
	t, err := reach(s, name)
	if err != nil || !t.remote() {
		return t, err
	}
	if t.Token == "" {
		return t, holt.Errorf(holt.InvalidArgument, "a server over TCP needs a token").WithHint("add --token-file FILE or --token-stdin")
	}
	if strings.ContainsFunc(t.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return t, holt.Errorf(holt.InvalidArgument, "the input is not a token").WithHint("a token is one line that begins with holt_")
	}
	opt, err := t.options()
	if err != nil {
		return t, err
	}
	c, err := client.New(opt)
	if err != nil {
		return t, err
	}
	c.Close()
	return t, nil
}

// inTheClear says that a context's token travels unencrypted, further than this machine.
func inTheClear(t target) bool {
	if !t.remote() || strings.HasPrefix(t.Server, "https://") {
		return false
	}
	u, err := url.Parse("http://" + strings.TrimPrefix(t.Server, "http://"))
	if err != nil {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

func (a *app) contextUse() *cobra.Command {
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Select the current context", Args: exactly(1),
		Example:           "  holt context use prod\n  holt context use local",
		ValidArgsFunction: a.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			var t target
			err := a.changeContexts(func(c *contexts) (err error) {
				t, err = a.contextTarget(*c, args[0])
				c.Current = args[0]
				if args[0] == localContext {
					c.Current = ""
				}
				return err
			})
			if err != nil {
				return err
			}
			if name := a.getenv(holt.EnvContext); name != "" && name != args[0] || a.getenv(holt.EnvServer)+a.getenv(holt.EnvHost)+a.getenv(holt.EnvSocket)+a.getenv(holt.EnvDataDir) != "" {
				a.say("note: this shell's environment selects another server, which takes precedence: holt context --help")
			}
			if a.wantsJSON() {
				return printJSON(a.Out, showContext(t, true))
			}
			fmt.Fprintf(a.Out, "the current context is %s\n", args[0])
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) contextList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List contexts", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.loadContexts()
			if err != nil {
				return err
			}
			now, _ := a.target() // what is wrong with it the list helps to mend
			all := []shownContext{}
			for _, name := range append([]string{localContext}, slices.Sorted(maps.Keys(c.Contexts))...) {
				t, err := a.contextTarget(c, name)
				if err != nil {
					return err
				}
				all = append(all, showContext(t, now.name == name))
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			rows := make([][]string, len(all))
			for i, one := range all {
				mark := ""
				if one.Current {
					mark = "*"
				}
				rows[i] = []string{mark, one.Name, one.Server}
			}
			return printTable(a.Out, []string{"", "NAME", "SERVER"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) contextShow() *cobra.Command {
	var only bool
	cmd := &cobra.Command{
		Use: "show [NAME]", Aliases: []string{"get"}, Short: "Show the selected server, or a context", Args: atLeast(0, 1),
		Long: `Shows the selected server, or that of a context. With --name it prints only the context's name, for
a shell prompt; the line is empty if HOLT_SERVER selects the server.`,
		Example:           `  PS1='[$(holt context show --name)] \w \$ '`,
		ValidArgsFunction: a.completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			now, err := a.target()
			t := now
			if len(args) > 0 {
				var c contexts
				if c, err = a.loadContexts(); err == nil {
					t, err = a.contextTarget(c, args[0])
				}
			}
			switch {
			case err != nil:
				return err
			case only && !a.json:
				fmt.Fprintln(a.Out, t.name)
				return nil
			}
			is := showContext(t, t.name == now.name)
			if a.wantsJSON() {
				return printJSON(a.Out, is)
			}
			rows := [][]string{{"name", is.Name}, {"server", is.Server}, {"token", yesNo(is.HasToken)}, {"own CA", yesNo(is.HasCA)}}
			if is.Fingerprint != "" {
				rows = append(rows, []string{"fingerprint", is.Fingerprint})
			}
			return printTable(a.Out, nil, rows)
		},
	}
	cmd.Flags().BoolVar(&only, "name", false, "print only its name")
	a.jsonFlag(cmd)
	return cmd
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a *app) contextDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"}, Short: "Delete contexts with their tokens", Args: exactly(1),
		Long:              "Deletes contexts. Their tokens stay valid; to end one: holt token revoke. If the current context is deleted, local becomes the current one.",
		ValidArgsFunction: a.completeContexts,
		RunE: func(_ *cobra.Command, args []string) error {
			err := a.changeContexts(func(c *contexts) error {
				if _, ok := c.Contexts[args[0]]; !ok {
					return noContext(args[0])
				}
				delete(c.Contexts, args[0])
				if c.Current == args[0] {
					c.Current = ""
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.deleted(args[0])
		},
	}
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

// completeContexts completes the names of contexts; no server is asked.
func (a *app) completeContexts(_ *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, _ := a.loadContexts() // none
	out := []cobra.Completion{localContext + "\tthis machine"}
	for _, name := range slices.Sorted(maps.Keys(c.Contexts)) {
		out = append(out, name+"\t"+c.Contexts[name].Server)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
