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
	return group("ssh-key", "Public keys of SSH clients", a.sshKeyAdd(), a.sshKeyList(), a.sshKeyDelete(), a.sshKeyHost())
}

// mostKeyFile bounds a public key, bytes.
const mostKeyFile = 16 << 10

func (a *app) sshKeyAdd() *cobra.Command {
	var spec holt.SSHKeySpec
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Add a public key for SSH", Args: exactly(1),
		Long: `Adds a public key (a file such as ~/.ssh/id_ed25519.pub; - for standard input). Its owner can then connect with
ssh COMPUTER@HOST -p 2222 as the Linux user agent, or with ssh COMPUTER+root@HOST as another user.

The key has the rights of the caller. If the caller uses a token, the key has the token's rights and ends with it.
With --tenant it reaches only that tenant's computers. If several tenants have added the same key, its owner selects
one with ssh COMPUTER.TENANT@HOST, or uses the computer's id.`,
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
	cmd.Flags().StringVar(&spec.Name, "name", "", "name of the key (default: its comment)")
	cmd.Flags().BoolVar(&spec.AllowAgentForwarding, "allow-agent-forwarding", false, "allow agent forwarding; root in the computer can use the agent during the connection")
	a.jsonFlag(cmd)
	return cmd
}

// readKey reads a public key from a file or standard input.
func (a *app) readKey(path string) (string, error) {
	in := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return "", holt.Errorf(holt.InvalidArgument, "cannot read %s: %w", path, cause(err)).WithHint("use a public key file, which ends in .pub; create a key pair with: ssh-keygen -t ed25519")
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, mostKeyFile+1))
	if err != nil {
		return "", holt.Errorf(holt.InvalidArgument, "cannot read the key: %w", err).WithHint("use a file, or - for standard input")
	}
	if len(b) > mostKeyFile {
		return "", holt.Errorf(holt.InvalidArgument, "not a public key: longer than %d bytes", mostKeyFile).WithHint("use a public key file, which ends in .pub; create a key pair with: ssh-keygen -t ed25519")
	}
	return string(b), nil
}

func (a *app) sshKeyList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the public keys of SSH clients", Args: exactly(0),
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
				a.say("no keys yet; add yours with: holt ssh-key add ~/.ssh/id_ed25519.pub")
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
		Use: "delete KEY", Aliases: []string{"rm"}, Short: "Delete a key and close its connections", Args: exactly(1),
		Long:              `Deletes a key, given by its id, its fingerprint, or its name if that is unique. Its SSH connections are closed.`,
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
		Use: "host", Short: "Show the SSH host key of the daemon", Args: exactly(0),
		Long: `Shows the address of the SSH gateway, the fingerprint that ssh asks about at the first connection,
and the line for ~/.ssh/known_hosts. The key is created once and never changes.`,
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
			fmt.Fprintf(a.Out, "address      %s\nfingerprint  %s\nknown_hosts  %s\n", cmp.Or(h.Address, "none; holt computer ssh works without it"), h.Fingerprint, knownHost(h))
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
