package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holt"
	"holt/client"
)

func (a *app) imageCommand() *cobra.Command {
	return group("image", "Images that root disks of computers are created from", a.imageBuild(), a.imageList(), a.imageShow(), a.imageDelete(), a.imagePrune())
}

func (a *app) imageBuild() *cobra.Command {
	var shape holt.Shape
	cmd := &cobra.Command{
		Use: "build TEMPLATE", Short: "Build a template's image on this machine and boot it once", Args: exactly(1),
		Long: `Builds the image of a template. TEMPLATE is base, coding-agent, browser or docker, the path of a
recipe, or an OCI image of Debian bookworm: docker://NAME:TAG in a registry, oci:/DIRECTORY[:TAG]
for a layout, or docker-archive:/FILE for the output of docker save. holt adds systemd and the user
agent to an OCI image and names the template after it.

An image with the same content is not built again. The tag of an OCI image is not resolved again
while its image exists (delete it first: holt image delete). The root disk of an OCI image has at
least 8192 MiB; a recipe with "from" can set another disk_size_mb.

The daemon then boots the image once, waits until all services are started, and keeps a boot
snapshot: new computers with the same number of processors and memory start from it. If a service of
the template does not start, the command fails with the end of its log; the image can still be used,
and its computers boot. If no daemon is running, the next one does this in the background.`,
		Example: `  holt image build coding-agent
  holt image build ./recipe.json
  holt image build docker://python:3.12-slim-bookworm
  holt computer create --template python-3-12-slim-bookworm`,
		ValidArgsFunction: a.complete(a.templateNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := refuseEmptyFlags(cmd)
			if err == nil {
				err = a.local.CheckShape(shape) // building takes minutes
			}
			if err != nil {
				return err
			}
			at, err := a.place()
			if err != nil {
				return err
			}
			image, err := a.build(cmd.Context(), at, args[0])
			if err != nil {
				return err
			}
			if image, err = a.bootAfterBuild(cmd.Context(), at, image, shape); err != nil {
				return err
			}
			if a.wantsJSON() {
				return printJSON(a.Out, image)
			}
			fmt.Fprintf(a.Out, "%s is built: %s, needs a disk of %d MiB\n", image.Template, size(image.Bytes), image.MinDiskMB)
			return nil
		},
	}
	cmd.Flags().IntVar(&shape.CPUs, "cpus", 0, "virtual processors of the boot snapshot (default: 1)")
	cmd.Flags().IntVar(&shape.MemoryMB, "memory-mb", 0, "memory of the boot snapshot, MiB (default: 1024)")
	a.jsonFlag(cmd)
	return cmd
}

// build builds one image and shows how far it is.
func (a *app) build(ctx context.Context, at Place, template string) (holt.Image, error) {
	b := a.begin("image " + template)
	defer b.end()
	return a.local.BuildImage(ctx, at, template, b.show)
}

// bootAfterBuild has the daemon, if one runs here, boot what was built.
func (a *app) bootAfterBuild(ctx context.Context, at Place, image holt.Image, shape holt.Shape) (holt.Image, error) {
	socket, err := a.socket()
	if err != nil {
		return image, err
	}
	c, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return image, err
	}
	if _, err := c.Daemon.Health(ctx); err != nil {
		a.say("no daemon is running here; the next one boots %s once, in the background", visible(image.Template))
		if shape != (holt.Shape{}) && ctx.Err() == nil {
			return image, a.local.BootLater(ctx, at, image, shape)
		}
		return image, ctx.Err()
	}
	return a.boot(ctx, c, image, shape)
}

// boot has a daemon boot an image once and keep that, if its machines can be kept.
func (a *app) boot(ctx context.Context, c *client.Client, image holt.Image, shape holt.Shape) (booted holt.Image, err error) {
	title := fmt.Sprintf("image %s: %s", visible(image.Template), stepOf(Progress{Step: imageSteps, Stage: "boot"}))
	if !isTerminal(a.Err) {
		a.say("%s", title)
	}
	err = a.wait(title, func() error {
		booted, err = c.Images.Boot(ctx, image.Digest, shape, "")
		return err
	})
	switch holt.CodeOf(err) {
	case holt.NotFound:
		a.say("the daemon did not boot the image because it has another image directory or another version of holt")
		return image, nil
	case holt.Unsupported:
		return image, nil
	}
	return booted, err
}

func (a *app) imageList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List templates and whether they are built", Args: exactly(0),
		Long: `Lists all templates, built or not, and all images. An image is outdated if its template's recipe or
the host has changed since it was built. READY shows its boot snapshots as processors×MiB: new computers
of that shape start from one, others boot first (if no daemon is running, a boot snapshot may be for
another version of QEMU). SIZE includes them. COMPUTERS counts the disks that use the image.`,
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
				rows[i] = []string{im.Template, "no", "-", "-", "-", "-", "-"}
				if im.BuiltAt != nil {
					built := ago(*im.BuiltAt)
					if !im.Built {
						built += ", outdated"
					}
					rows[i] = []string{im.Template, built, shapes(im.Ready), size(im.Bytes), fmt.Sprintf("%d MiB", im.MinDiskMB), fmt.Sprint(im.Computers), im.Digest[:min(12, len(im.Digest))]}
				}
			}
			return printTable(a.Out, []string{"TEMPLATE", "BUILT", "READY", "SIZE", "SMALLEST DISK", "COMPUTERS", "DIGEST"}, rows)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (a *app) imageShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show TEMPLATE|DIGEST", Aliases: []string{"get"}, Short: "Show an image", Args: exactly(1),
		Long:              "Shows the images of a template, beginning with the one that new computers use, or the image with this digest.",
		Example:           "  holt image show base\n  holt image show base --json | jq -r '.[0].digest'",
		ValidArgsFunction: a.complete(a.templateNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := a.images(cmd.Context())
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(im holt.Image) bool {
				return im.Template != args[0] && (len(args[0]) < 8 || !strings.HasPrefix(im.Digest, args[0]))
			})
			slices.SortStableFunc(all, func(x, y holt.Image) int { // what is built and up to date first
				switch {
				case x.Built == y.Built:
					return 0
				case x.Built:
					return -1
				}
				return 1
			})
			switch {
			case len(all) == 0:
				return holt.Errorf(holt.NotFound, "no template or image %q", args[0]).WithHint("list them with: holt image list; a digest needs at least 8 digits")
			case a.wantsJSON():
				return printJSON(a.Out, all)
			}
			for i, im := range all {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := printTable(a.Out, nil, imageRows(im)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

// imageRows says all there is of an image.
func imageRows(im holt.Image) [][]string {
	rows := [][]string{{"template", im.Template}}
	if im.BuiltAt == nil {
		return append(rows, []string{"built", "no; build it with: holt image build " + im.Template})
	}
	built := ago(*im.BuiltAt)
	if !im.Built {
		built += ", outdated: the recipe or the host has changed since"
	}
	rows = append(rows, []string{"built", built}, []string{"digest", im.Digest}, []string{"ready", shapes(im.Ready)}, []string{"size", size(im.Bytes)},
		[]string{"smallest disk", fmt.Sprintf("%d MiB", im.MinDiskMB)}, []string{"computers", fmt.Sprint(im.Computers)})
	if im.Unbooted != nil {
		rows = append(rows, []string{"not booted yet", shapes([]holt.Shape{*im.Unbooted})})
	}
	return rows
}

// shapes is a cell of a table.
func shapes(all []holt.Shape) string {
	if len(all) == 0 {
		return "no"
	}
	cells := make([]string, len(all))
	for i, s := range all {
		cells[i] = fmt.Sprintf("%d×%d", s.CPUs, s.MemoryMB)
	}
	return strings.Join(cells, " ")
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
	all, err := a.local.ListImages(ctx, at)
	if err != nil {
		return nil, err
	}
	return all, a.readyNow(ctx, all)
}

// readyNow asks the daemon, if one runs here, in which shapes images are ready: that is a matter of its engine, too.
func (a *app) readyNow(ctx context.Context, all []holt.Image) error {
	socket, err := a.socket()
	if err != nil {
		return err
	}
	c, err := client.New(client.Options{Socket: socket})
	if err != nil {
		return err
	}
	theirs, err := c.Images.List(ctx)
	if err != nil {
		return ctx.Err() // none runs
	}
	for i := range all {
		if j := slices.IndexFunc(theirs, func(im holt.Image) bool { return im.Digest != "" && im.Digest == all[i].Digest }); j >= 0 {
			all[i].Ready = theirs[j].Ready
		}
	}
	return nil
}

func (a *app) imageDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete TEMPLATE|DIGEST...", Aliases: []string{"rm"}, Short: "Delete an image that no computer uses", Args: exactly(1),
		ValidArgsFunction: a.completeAll(a.templateNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.imagesHere()
			if err != nil {
				return err
			}
			if err := a.confirm(yes, fmt.Sprintf("Delete the image %s? Building it again takes minutes.", visible(args[0]))); err != nil {
				return err
			}
			gone, err := a.local.DeleteImage(cmd.Context(), at, args[0])
			if err != nil {
				return err
			}
			return a.imagesGone([]holt.Image{gone})
		},
	}
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
}

func (a *app) imagePrune() *cobra.Command {
	cmd := &cobra.Command{
		Use: "prune", Short: "Delete outdated images that no computer uses", Args: exactly(0),
		Long: `Deletes images that a newer build of their template has replaced and that no
computer's disk uses, of any daemon.`,
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
		return Place{}, holt.Errorf(holt.Unsupported, "images can only be deleted on the machine that stores them").
			WithHint("run the command there, with --context %s", localContext)
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
	fmt.Fprintf(a.Out, "%s, %s\n", holt.CountOf(len(gone), "image"), size(bytes))
	return nil
}
