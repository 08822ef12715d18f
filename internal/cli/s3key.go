package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) s3KeyCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "s3-key TOKEN", Short: "Make a key for clients of S3 and print it once", Args: exactly(1),
		Long: `Makes an access key of a token. Whoever has it can do over S3 what the token permits. The secret cannot be
shown again. The key is deleted with the token.`,
		Example: `  holt token s3-key backup
  holt token s3-key backup --json | jq -r '"AWS_ACCESS_KEY_ID=\(.id)\nAWS_SECRET_ACCESS_KEY=\(.secret)"' >key.env`,
		ValidArgsFunction: a.complete(tokenNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			made, err := c.S3Keys.Create(cmd.Context(), args[0], "")
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, made)
			}
			fmt.Fprintf(a.Err, "S3 key of the token %s of tenant %s; its secret is shown only once:\n", visible(made.TokenName), made.Tenant)
			_, err = fmt.Fprintf(a.Out, "access key id      %s\nsecret access key  %s\n", made.ID, made.Secret)
			return err
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) s3KeyList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "s3-keys", Short: "List the keys of clients of S3", Args: exactly(0), Example: "  holt token s3-keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			all, err := c.S3Keys.List(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, all, "no S3 keys; make one with: holt token s3-key TOKEN", []string{"ID", "TOKEN", "TENANT", "CREATED"}, func(k holt.S3Key) []string {
				return []string{k.ID, visible(k.TokenName), k.Tenant, ago(k.CreatedAt)}
			})
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) s3KeyDelete() *cobra.Command {
	return a.deletes(&cobra.Command{Use: "s3-key-delete KEY...", Short: "Delete keys of clients of S3", Example: "  holt token s3-key-delete HOLTQ3TZ7WL2VXN5MJ4R"}, s3KeyNames,
		func(ctx context.Context, c *client.Client, ref string) error { return c.S3Keys.Delete(ctx, ref, "") })
}

func s3KeyNames(ctx context.Context, c *client.Client) (out []string) {
	all, _ := c.S3Keys.List(ctx) // no daemon, no names
	for _, k := range all {
		out = append(out, k.ID+"\t"+k.TokenName)
	}
	return out
}
