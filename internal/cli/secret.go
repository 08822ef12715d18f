package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

// mostSecret is more than a secret's value may have, bytes.
const mostSecret = 64 << 10

// secretsOfFlag names a computer whose host secrets another gets that is made.
func secretsOfFlag(a *app, cmd *cobra.Command, of *string) {
	cmd.Flags().StringVar(of, "secrets-of", "", "a computer whose host secrets it gets, as they are now (holt computer secret; default: it has none)")
	a.completeFlag(cmd, "secrets-of", a.computerNames)
}

func (a *app) computerSecret() *cobra.Command {
	return group("secret", "Secrets of hosts, which a computer uses and never has", a.secretSet(), a.secretList(), a.secretDelete())
}

// secretSource is where a secret's value comes from: never an argument, which other users of this machine can see.
type secretSource struct{ file, env string }

func (s secretSource) read(a *app) (string, error) {
	var b []byte
	var err error
	switch {
	case s.file != "" && s.env != "":
		return "", holt.Errorf(holt.InvalidArgument, "--value-file and --env both give the value").WithHint("give one of them, or neither and the value on standard input")
	case s.env != "":
		b = []byte(a.getenv(s.env))
		if len(b) == 0 {
			return "", holt.Errorf(holt.InvalidArgument, "the variable %s is not set in this shell", s.env).WithHint("export %s first", s.env)
		}
	case s.file != "":
		var f *os.File
		if f, err = os.Open(s.file); err != nil {
			return "", holt.Errorf(holt.InvalidArgument, "the value cannot be read: %w", err).WithHint("name a file, or pass the value through standard input")
		}
		defer f.Close()
		b, err = io.ReadAll(io.LimitReader(f, mostSecret))
	default:
		if isTerminal(a.In) {
			return "", holt.Errorf(holt.InvalidArgument, "the value is not given").WithHint("on standard input (… < FILE), with --value-file FILE, or with --env VARIABLE: it should not show on a screen")
		}
		b, err = io.ReadAll(io.LimitReader(a.In, mostSecret))
	}
	value := strings.TrimRight(string(b), "\r\n")
	if err == nil && value == "" {
		err = holt.Errorf(holt.InvalidArgument, "the value is empty").WithHint("on standard input, with --value-file FILE, or with --env VARIABLE")
	}
	return value, err
}

func (a *app) secretSet() *cobra.Command {
	var secret holt.HostSecret
	var from secretSource
	cmd := &cobra.Command{
		Use: "set NAME SECRET --host HOST", Short: "Have a computer's requests to a host carry a secret that it does not have", Args: exactly(2),
		Long: `Gives a computer a secret for one host, or replaces the one of that name. The proxy of
the computer's network adds it to requests to that host, over TLS that is verified; it is
in no variable, file or memory of the computer. The value comes from standard input,
--value-file or --env, and nobody gets it back.

What the proxy adds: Authorization: Bearer VALUE; with --header that header with the value
alone; with --placeholder the value takes the place of that text, which the computer sends
itself, in --header or in any.

Runs, terminals and services that begin while a computer has a secret have the variables
HTTPS_PROXY and its like, and trust the computer's own CA through SSL_CERT_FILE,
NODE_EXTRA_CA_CERTS and others: curl, git, Node 24, Python, Go and what is made with
them use it by themselves. What asks none of them finds the proxy at
http://proxy.holt.internal:3128 and the certificate in /run/holt/ca.pem. Services that
the template declares, and containers, are not told.

A computer can use its secrets as long as it may reach their hosts. Forks have none
unless holt computer fork --with-secrets gives them.`,
		Example: `  pass show openai | holt computer secret set einstein openai --host api.openai.com
  holt computer secret set einstein anthropic --host api.anthropic.com --header x-api-key --env ANTHROPIC_API_KEY
  holt computer secret set einstein github --host github.com --placeholder holt-github-token --value-file ~/.github-token`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if secret.Host == "" {
				return holt.Errorf(holt.InvalidArgument, "--host is missing").WithHint("the exact name of the host that the secret is for, as --host api.example.com")
			}
			if _, err := holt.ParseSecretName(args[1]); err != nil {
				return err
			}
			var err error
			if secret.Value, err = from.read(a); err != nil {
				return err
			}
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			one, err := c.Secrets.Set(cmd.Context(), args[0], args[1], secret)
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, one)
			}
			fmt.Fprintf(a.Out, "%s: requests to %s have %s\n", one.Name, one.Host, secretPlace(one))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&secret.Host, "host", "", "the exact name of the `HOST` that it is for, with :PORT or at 443")
	f.StringVar(&secret.Header, "header", "", "the header that it stands in (default: Authorization, with Bearer before it)")
	f.StringVar(&secret.Placeholder, "placeholder", "", "a `TEXT` of at least 8 bytes that the computer sends, and that it takes the place of")
	f.BoolVar(&secret.Plain, "plain", false, "also over http://, where all between see it")
	f.StringVar(&from.file, "value-file", "", "a `FILE` with the value (default: standard input)")
	f.StringVar(&from.env, "env", "", "a `VARIABLE` of this shell with the value")
	a.jsonFlag(cmd)
	return cmd
}

// secretPlace says where in a request a secret stands.
func secretPlace(s holt.ComputerSecret) string {
	switch {
	case s.Placeholder != "":
		return fmt.Sprintf("it for %s in %s", visible(s.Placeholder), cmp.Or(s.Header, "any header"))
	case s.Header != "":
		return "it as " + visible(s.Header)
	}
	return "it as Authorization: Bearer"
}

// secretHeader is the header that a secret stands in.
func secretHeader(s holt.ComputerSecret) string {
	switch {
	case s.Header != "":
		return visible(s.Header)
	case s.Placeholder != "":
		return "any"
	}
	return "Authorization: Bearer"
}

func (a *app) secretList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List a computer's secrets of hosts, without their values", Args: exactly(1),
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.Secrets.List(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no secrets; give one: holt computer secret set %s NAME --host HOST < FILE", args[0])
				return nil
			}
			rows := make([][]string, len(all))
			for i, s := range all {
				plain := "-"
				if s.Plain {
					plain = "yes"
				}
				rows[i] = []string{s.Name, s.Host, secretHeader(s), cmp.Or(visible(s.Placeholder), "-"), plain, ago(s.SetAt)}
			}
			return printTable(a.Out, []string{"NAME", "HOST", "HEADER", "PLACEHOLDER", "PLAIN", "SET"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) secretDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAME SECRET", Aliases: []string{"rm"}, Short: "Take a secret of a host away from a computer, at once", Args: exactly(2),
		ValidArgsFunction: a.completeSecond(a.computerNames, secretNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := c.Secrets.Delete(cmd.Context(), args[0], args[1], ""); err != nil {
				return err
			}
			return a.deleted(args[1])
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func secretNames(computer string) names {
	return func(ctx context.Context, c *client.Client) (out []string) {
		all, _ := c.Secrets.List(ctx, computer) // no daemon, no names
		for _, s := range all {
			out = append(out, s.Name)
		}
		return out
	}
}
