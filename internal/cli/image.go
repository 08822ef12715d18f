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
	return group("image", "What computers' root disks are made from", a.imageBuild(), a.imageList(), a.imageShow(), a.imageDelete(), a.imagePrune())
}

func (a *app) imageBuild() *cobra.Command {
	var shape holt.Shape
	cmd := &cobra.Command{
		Use: "build TEMPLATE", Short: "Build a template's image on this machine, and boot it once", Args: exactly(1),
		Long: `Builds the image of a template: base, coding-agent, browser or docker, the path of a recipe, or an
OCI image of Debian bookworm, to which systemd and the user agent are added:
docker://NAME:TAG in a registry, oci:/DIRECTORY[:TAG] a layout,
docker-archive:/FILE what docker save wrote. The template is then named after it.
What was built before from the same content is used again; a tag is not asked for again
while its image is there (holt image delete first). Its file system, and so the smallest root
disk of its computers, has 8192 MiB; a recipe that is "from" it may say another disk_size_mb.

The daemon then boots it once, waits until everything is started, and keeps that: new
computers of that shape go on from there. A service of the template that does not come up is an
error, with the end of its log; the image stays, and its computers boot. Where no
daemon runs, the next one does it in the background, in that shape.`,
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
			fmt.Fprintf(a.Out, "%s is built: %s, fits on %d MiB\n", image.Template, size(image.Bytes), image.MinDiskMB)
			return nil
		},
	}
	cmd.Flags().IntVar(&shape.CPUs, "cpus", 0, "virtual processors of the machine that is booted (default: 1)")
	cmd.Flags().IntVar(&shape.MemoryMB, "memory-mb", 0, "its memory, MiB (default: 1024)")
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
		a.say("no daemon runs here: the next one boots %s once, in the background", visible(image.Template))
		if shape != (holt.Shape{}) && ctx.Err() == nil {
			return image, a.local.BootLater(ctx, at, image, shape)
		}
		return image, ctx.Err()
	}
	return a.boot(ctx, c, image, shape)
}

// boot has a daemon boot an image once and keep that, if its machines can be kept.
func (a *app) boot(ctx context.Context, c *client.Client, image holt.Image, shape holt.Shape) (booted holt.Image, err error) {
	if !isTerminal(a.Err) {
		a.say("image %s: booting", visible(image.Template))
	}
	err = a.wait(fmt.Sprintf("booting %s once", visible(image.Template)), func() error {
		booted, err = c.Images.Boot(ctx, image.Digest, shape, "")
		return err
	})
	switch holt.CodeOf(err) {
	case holt.NotFound:
		a.say("the daemon here does not boot it: its images are elsewhere, or it is of another version")
		return image, nil
	case holt.Unsupported:
		return image, nil
	}
	return booted, err
}

func (a *app) imageList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List templates and whether they are built", Args: exactly(0),
		Long: `Lists every template, built or not, and every image that is there. One is
outdated when its template's recipe, or the host, has changed since. READY are the
processors and MiB of memory with which it was booted and is kept: new computers like
that go on from there, others boot first (without a daemon they may be for another version of
QEMU). SIZE is with those. COMPUTERS counts the disks that stand on it.`,
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
		Use: "show TEMPLATE|DIGEST", Aliases: []string{"get"}, Short: "Show the images of a template, or one", Args: exactly(1),
		Long:              "Shows what there is of a template, the image that new computers are made of first, or the image whose digest begins so.",
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
				return holt.Errorf(holt.NotFound, "there is no template or image %q", args[0]).WithHint("holt image list shows them; a digest is given by 8 digits or more")
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
		return append(rows, []string{"built", "no; holt image build " + im.Template})
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
		Use: "delete TEMPLATE|DIGEST...", Aliases: []string{"rm"}, Short: "Delete an image that no computer stands on", Args: exactly(1),
		ValidArgsFunction: a.completeAll(a.templateNames),
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
	yesFlag(cmd, &yes)
	a.jsonFlag(cmd)
	return a.severally(cmd, 0)
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
			WithHint("call it there, with the context %s", localContext)
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
