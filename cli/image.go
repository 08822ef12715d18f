package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holt"
)

func (a *app) imageCommand() *cobra.Command {
	return group("image", "What computers' root disks are made from", a.imageBuild(), a.imageList(), a.imageDelete(), a.imagePrune())
}

func (a *app) imageBuild() *cobra.Command {
	cmd := &cobra.Command{
		Use: "build TEMPLATE", Short: "Build a template's image on this machine", Args: exactly(1),
		Long: `Builds the image of a template: base, coding-agent or browser, the path of a recipe, or an
OCI image of Debian bookworm, to which systemd and the user agent are added:
docker://NAME:TAG in a registry, oci:/DIRECTORY[:TAG] a layout,
docker-archive:/FILE what docker save wrote. The template is then named after it.
What was built before from the same content is used again; a tag is not asked for again
while its image is there (holt image delete first).`,
		Example: `  holt image build coding-agent
  holt image build ./recipe.json
  holt image build docker://python:3.12-slim-bookworm
  holt computer create --template python-3-12-slim-bookworm`,
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
		Long: `Lists every template, built or not, and every image that is there. One is
outdated when its template's recipe, or the host, has changed since. COMPUTERS
counts the disks that stand on it.`,
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
				rows[i] = []string{im.Template, "no", "-", "-", "-", "-"}
				if im.BuiltAt != nil {
					built := ago(*im.BuiltAt)
					if !im.Built {
						built += ", outdated"
					}
					rows[i] = []string{im.Template, built, size(im.Bytes), fmt.Sprintf("%d MiB", im.MinDiskMB), fmt.Sprint(im.Computers), im.Digest[:min(12, len(im.Digest))]}
				}
			}
			return printTable(a.Out, []string{"TEMPLATE", "BUILT", "SIZE", "SMALLEST DISK", "COMPUTERS", "DIGEST"}, rows)
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

func (a *app) imageDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete TEMPLATE|DIGEST", Aliases: []string{"rm"}, Short: "Delete an image that no computer stands on", Args: exactly(1),
		ValidArgsFunction: a.complete(a.templateNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.imagesHere()
			if err != nil {
				return err
			}
			if err := a.confirm(yes, fmt.Sprintf("Delete the image %s? To build it again takes minutes.", visible(args[0]))); err != nil {
				return err
			}
			gone, err := a.local.DeleteImage(cmd.Context(), at, args[0])
			if err != nil {
				return err
			}
			return a.imagesGone([]holt.Image{gone})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) imagePrune() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete images that nothing needs any more", Args: exactly(0),
		Long: `Deletes the images that a later build of their template has replaced and that
no computer's disk stands on, whichever daemon it belongs to.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.imagesHere()
			if err != nil {
				return err
			}
			gone, err := a.local.PruneImages(cmd.Context(), at)
			if err != nil {
				return err
			}
			return a.imagesGone(gone)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// imagesHere says where this machine's images are.
func (a *app) imagesHere() (Place, error) {
	if a.remote() {
		return Place{}, holt.Errorf(holt.Unsupported, "images are deleted on the machine where they are").
			WithHint("call it there, without %s", holt.EnvHost)
	}
	return a.place()
}

// imagesGone says which images were deleted.
func (a *app) imagesGone(gone []holt.Image) error {
	if a.wantsJSON() {
		return printJSON(a.Out, gone)
	}
	bytes := int64(0)
	for _, im := range gone {
		bytes += im.Bytes
		fmt.Fprintf(a.Out, "%s (%s) is deleted\n", visible(im.Template), im.Digest[:min(12, len(im.Digest))])
	}
	fmt.Fprintf(a.Out, "%d images, %s\n", len(gone), size(bytes))
	return nil
}
