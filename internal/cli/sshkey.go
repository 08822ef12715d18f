package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) sshKeyCommand() *cobra.Command {
	return group("ssh-key", "Keys by which SSH clients come in", a.sshKeyAdd(), a.sshKeyList(), a.sshKeyDelete(), a.sshKeyHost())
}

// mostKeyFile bounds a public key, bytes.
const mostKeyFile = 16 << 10

func (a *app) sshKeyAdd() *cobra.Command {
	var spec holt.SSHKeySpec
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Let who has a key come in by SSH", Args: exactly(1),
		Long: `Puts a public key on record (a file as ~/.ssh/id_ed25519.pub; - for standard input). Who has its private half then
comes in by ssh COMPUTER@HOST -p 2222, as the Linux user agent, or by ssh COMPUTER+root@HOST as another.

The key has the rights of who adds it: with a token it has that token's, and ends with it. With --tenant it reaches that
tenant's computers and no others. Where several tenants have added a key its owner says which is meant, as
ssh COMPUTER.TENANT@HOST, or gives the computer's id.`,
		Example: `  holt ssh-key add ~/.ssh/id_ed25519.pub
  holt --tenant team-a ssh-key add ana.pub
  holt ssh-key add --name laptop --allow-agent-forwarding ~/.ssh/id_ed25519.pub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connectFor(cmd)
			if err != nil {
				return err
			}
			if spec.Key, err = a.readKey(args[0]); err != nil {
				return err
			}
			one, err := c.SSHKeys.Add(cmd.Context(), spec, "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, one)
			}
			fmt.Fprintf(a.Out, "%s %s\n", visible(one.Name), one.Fingerprint)
			return nil
		},
	}
	cmd.Flags().StringVar(&spec.Name, "name", "", "what it is for (default: the comment of the key)")
	cmd.Flags().BoolVar(&spec.AllowAgentForwarding, "allow-agent-forwarding", false, "let who comes with it forward an SSH agent: root in the computer can use it while they are there")
	a.jsonFlag(cmd)
	return cmd
}

// readKey reads a public key from a file or standard input.
func (a *app) readKey(path string) (string, error) {
	in := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", holt.Errorf(holt.InvalidArgument, "cannot read %s: %w", path, cause(err)).WithHint("ssh-keygen -t ed25519 makes a pair; the file that ends with .pub is meant")
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, mostKeyFile+1))
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "cannot read the key: %w", err).WithHint("give a file, or - for standard input")
	}
	if len(b) > mostKeyFile {
		return "", holt.Errorf(holt.InvalidArgument, "that is no public key: it is longer than %d bytes", mostKeyFile).WithHint("ssh-keygen -t ed25519 makes a pair; the file that ends with .pub is meant")
	}
	return string(b), nil
}

func (a *app) sshKeyList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the keys by which SSH clients come in", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.SSHKeys.List(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			if len(all) == 0 {
				a.say("no keys yet; add yours: holt ssh-key add ~/.ssh/id_ed25519.pub")
				return nil
			}
			rows := make([][]string, len(all))
			for i, k := range all {
				used, agent := "never", "no"
				if k.LastUsedAt != nil {
					used = ago(*k.LastUsedAt)
				}
				if k.AllowAgentForwarding {
					agent = "yes"
				}
				rows[i] = []string{string(k.ID), visible(k.Name), k.Type, k.Fingerprint, cmp.Or(k.Tenant, "-"), agent, ago(k.CreatedAt), used}
			}
			return printTable(a.Out, []string{"ID", "NAME", "TYPE", "FINGERPRINT", "TENANT", "AGENT", "ADDED", "USED"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) sshKeyDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete KEY", Aliases: []string{"rm"}, Short: "Remove a key, and end the connections that came by it", Args: exactly(1),
		Long:              `Removes a key, named by its id, or a fingerprint or name that only one has. SSH connections that came by it end.`,
		ValidArgsFunction: a.complete(sshKeyIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			one, err := c.SSHKeys.Delete(cmd.Context(), args[0], "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, one)
			}
			return a.deleted(one.Name)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func sshKeyIDs(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.SSHKeys.List(ctx) // no daemon, no keys
	for _, k := range all {
		out = append(out, string(k.ID)+"\t"+oneLine(k.Name))
	}
	return out
}

func (a *app) sshKeyHost() *cobra.Command {
	cmd := &cobra.Command{
		Use: "host", Short: "Show the key of this host, as SSH clients see it", Args: exactly(0),
		Long: `Shows where SSH clients are listened for, the fingerprint that ssh asks about at the first
connection, and the line for ~/.ssh/known_hosts that answers it. The key is made once and stays.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			h, err := c.SSH.Get(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, h)
			}
			fmt.Fprintf(a.Out, "address      %s\nfingerprint  %s\nknown_hosts  %s\n", cmp.Or(h.Address, "none: holt computer ssh works all the same"), h.Fingerprint, knownHost(h))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
