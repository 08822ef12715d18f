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
	cmd.Flags().StringVar(of, "secrets-of", "", "copy the host secrets of this computer (holt computer secret; default: none)")
	a.completeFlag(cmd, "secrets-of", a.computerNames)
}

func (a *app) computerSecret() *cobra.Command {
	return group("secret", "Credentials that a proxy adds to a computer's requests", a.secretSet(), a.secretList(), a.secretDelete())
}

// secretSource is where a secret's value comes from: never an argument, which other users of this machine can see.
type secretSource struct{ file, env string }

func (s secretSource) read(a *app) (string, error) {
	var b []byte
	var err error
	switch {
	case s.file != "" && s.env != "":
		return "", holt.Errorf(holt.InvalidArgument, "--value-file and --env exclude each other").WithHint("use one of them, or neither to read the value from standard input")
	case s.env != "":
		b = []byte(a.getenv(s.env))
		if len(b) == 0 {
			return "", holt.Errorf(holt.InvalidArgument, "the variable %s is not set in this shell", s.env).WithHint("set it first: export %s", s.env)
		}
	case s.file != "":
		var f *os.File
		if f, err = os.Open(s.file); err != nil {
			return "", holt.Errorf(holt.InvalidArgument, "read the value: %w", err).WithHint("use a readable file, or pass the value through standard input")
		}
		defer f.Close()
		b, err = io.ReadAll(io.LimitReader(f, mostSecret))
	default:
		if isTerminal(a.In) {
			return "", holt.Errorf(holt.InvalidArgument, "the value of the secret is missing").WithHint("pass it through standard input (… < FILE), --value-file FILE or --env VARIABLE, so that it is not visible on a screen")
		}
		b, err = io.ReadAll(io.LimitReader(a.In, mostSecret))
	}
	value := strings.TrimRight(string(b), "\r\n")
	if err == nil && value == "" {
		err = holt.Errorf(holt.InvalidArgument, "the value is empty").WithHint("pass it through standard input, --value-file FILE or --env VARIABLE")
	}
	return value, err
}

func (a *app) secretSet() *cobra.Command {
	var secret holt.HostSecret
	var from secretSource
	cmd := &cobra.Command{
		Use: "set NAME SECRET --host HOST", Short: "Set a secret that is added to a computer's requests to a host", Args: exactly(2),
		Long: `Sets a secret for one host, or replaces the one of that name. The proxy in the computer's network adds
it to requests to that host, over verified TLS. The secret is never in the computer: not in a variable,
a file or memory. The value is read from standard input, --value-file or --env, and cannot be read back.

By default the proxy adds Authorization: Bearer VALUE. With --header it adds that header with the value.
With --placeholder it replaces that text, which the computer sends, in --header or in any header.

New runs, terminals and services get HTTPS_PROXY and trust the computer's CA through SSL_CERT_FILE,
NODE_EXTRA_CA_CERTS and similar variables. curl, git, Node 24, Python and Go use these. Other programs
need the proxy http://proxy.holt.internal:3128 and the certificate /run/holt/ca.pem, and so do services
of the template and containers.

A secret works only if the network policy allows its host. Forks do not get secrets, unless they are
created with holt computer fork --with-secrets.`,
		Example: `  pass show openai | holt computer secret set einstein openai --host api.openai.com
  holt computer secret set einstein anthropic --host api.anthropic.com --header x-api-key --env ANTHROPIC_API_KEY
  holt computer secret set einstein github --host github.com --placeholder holt-github-token --value-file ~/.github-token`,
		ValidArgsFunction: a.complete(a.computerNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if secret.Host == "" {
				return holt.Errorf(holt.InvalidArgument, "--host is missing").WithHint("add the exact host name, such as --host api.example.com")
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
			fmt.Fprintf(a.Out, "%s: requests to %s get %s\n", one.Name, one.Host, secretPlace(one))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&secret.Host, "host", "", "the exact name of the `HOST`, optionally with :PORT (default: 443)")
	f.StringVar(&secret.Header, "header", "", "the header to set (default: Authorization, with the prefix Bearer)")
	f.StringVar(&secret.Placeholder, "placeholder", "", "replace this `TEXT`, of at least 8 bytes, in the computer's requests")
	f.BoolVar(&secret.Plain, "plain", false, "also add it to http:// requests, which are unencrypted")
	f.StringVar(&from.file, "value-file", "", "read the value from this `FILE` (default: standard input)")
	f.StringVar(&from.env, "env", "", "take the value from this `VARIABLE` of the shell")
	a.jsonFlag(cmd)
	return cmd
}

// secretPlace says where in a request a secret stands.
func secretPlace(s holt.ComputerSecret) string {
	switch {
	case s.Placeholder != "":
		return fmt.Sprintf("it instead of %s in %s", visible(s.Placeholder), cmp.Or(s.Header, "any header"))
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
		Use: "list NAME", Aliases: []string{"ls"}, Short: "List a computer's host secrets, without their values", Args: exactly(1),
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
				a.say("no secrets; set one with: holt computer secret set %s NAME --host HOST < FILE", args[0])
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
		Use: "delete NAME SECRET", Aliases: []string{"rm"}, Short: "Delete a host secret of a computer", Args: exactly(2),
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
