package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) imageCommand() *cobra.Command {
	return group("image", "What computers' root disks are made from", a.imageBuild(), a.imageList())
}

func (a *app) imageBuild() *cobra.Command {
	cmd := &cobra.Command{
		Use: "build TEMPLATE", Short: "Build a template's image on this machine", Args: exactly(1),
		Long: `Builds the image of a template, base or coding-agent or the path of a recipe.
What was built before from the same content is used again.`,
		ValidArgsFunction: a.complete(a.templateNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.place()
			if err != nil {
				return err
			}
			image, err := a.build(cmd.Context(), at, args[0])
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, image)
			}
			fmt.Fprintf(a.Out, "%s is built: %s, fits on %d MiB\n", image.Template, size(image.Bytes), image.MinDiskMB)
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// build builds one image and shows how far it is.
func (a *app) build(ctx context.Context, at Place, template string) (holt.Image, error) {
	b := a.begin("image " + template)
	defer b.end()
	return a.local.BuildImage(ctx, at, template, b.show)
}

func (a *app) imageList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List templates and whether they are built", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := a.images(cmd.Context())
			if err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, all)
			}
			rows := make([][]string, len(all))
			for i, im := range all {
				rows[i] = []string{im.Template, "no", "-", "-", "-"}
				if im.Built && im.BuiltAt != nil {
					rows[i] = []string{im.Template, ago(*im.BuiltAt), size(im.Bytes), fmt.Sprintf("%d MiB", im.MinDiskMB), cmp.Or(im.Digest, "-")[:min(12, len(cmp.Or(im.Digest, "-")))]}
				}
			}
			return printTable(a.Out, []string{"TEMPLATE", "BUILT", "SIZE", "SMALLEST DISK", "DIGEST"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// images asks a daemon elsewhere, or looks here.
func (a *app) images(ctx context.Context) ([]holt.Image, error) {
	if a.remote() {
		c, err := a.connect()
		if err != nil {
			return nil, err
		}
		return c.Images.List(ctx)
	}
	at, err := a.place()
	if err != nil {
		return nil, err
	}
	return a.local.ListImages(ctx, at)
}
