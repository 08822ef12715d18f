package image

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holt"
)

const (
	agentUser = "agent"
	agentUID  = 1000
	agentHome = "/home/agent"

	defaultDiskMB = 2048
)

//go:embed recipes
var recipeFiles embed.FS

// Templates returns the names of the embedded recipes, sorted.
func Templates() []string {
	entries, err := fs.ReadDir(recipeFiles, "recipes")
	if err != nil {
		return nil // impossible: the directory is embedded
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isPath reports whether template is the path of a recipe file, not a name.
func isPath(template string) bool { return strings.Contains(template, "/") }

// loadRecipe returns the recipe of a template, merged with those that it extends.
func loadRecipe(template string) (Recipe, error) {
	if holt.OCIReference(template) {
		return originRecipe(template)
	}
	if !isPath(template) {
		recipe, err := embeddedRecipe(template)
		if err != nil {
			return Recipe{}, err
		}
		return recipe.resolve(0)
	}
	recipe, err := readRecipe(template)
	if err != nil {
		return Recipe{}, err
	}
	if slices.Contains(Templates(), recipe.Name) {
		return Recipe{}, holt.Errorf(holt.InvalidArgument, "recipe %s has the name %q, which an embedded template has", template, recipe.Name).
			WithHint("give it another name")
	}
	return recipe.resolve(0)
}

// readRecipe reads a recipe file of this machine, and its source files.
func readRecipe(name string) (Recipe, error) {
	data, err := readBounded(name, maxRecipeBytes+1)
	if errors.Is(err, fs.ErrNotExist) {
		return Recipe{}, holt.Errorf(holt.NotFound, "there is no recipe file %s", name).
			WithHint("a name with a / is a file on the daemon's machine; holt image list shows the templates")
	}
	if err != nil {
		return Recipe{}, err
	}
	recipe, err := ParseRecipe(data)
	if err != nil {
		return Recipe{}, err
	}
	dir, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return Recipe{}, err
	}
	defer dir.Close()
	return recipe, recipe.readSources(dir.FS())
}

// readSources reads the sources of files into the recipe, so that its digest covers
// them.
func (r *Recipe) readSources(dir fs.FS) error {
	total := 0
	for i := range r.Files {
		f := &r.Files[i]
		if f.Source == "" {
			continue
		}
		data, err := readSource(dir, f.Source)
		if err == nil {
			if total += len(data); total > maxRecipeBytes {
				err = fmt.Errorf("the sources of a recipe have more than %d bytes", maxRecipeBytes)
			}
		}
		if err != nil {
			return holt.Errorf(holt.InvalidArgument, "recipe %q: file %s: %w", r.Name, f.Path, err).
				WithHint("a source is a file in the directory of the recipe, or below it")
		}
		f.Content, f.Source = string(data), ""
	}
	return nil
}

// readSource reads a regular file, up to one byte more than the maximum.
func readSource(dir fs.FS, name string) ([]byte, error) {
	if st, err := fs.Stat(dir, name); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRecipeBytes+1))
}

// originRecipe returns a recipe for an OCI image: the image with the packages that
// every computer needs, and the user agent.
func originRecipe(ref string) (Recipe, error) {
	o, err := parseOrigin(ref)
	if err != nil {
		return Recipe{}, err
	}
	r := Recipe{
		Name: o.label(), Summary: "of the OCI image " + ref, From: ref, Packages: []string{"sudo"},
		Users: []User{{Name: agentUser, UID: agentUID, Home: agentHome, Sudo: true}}, DiskSizeMB: 4 * defaultDiskMB,
	}
	if err := r.check(); err != nil || slices.Contains(Templates(), r.Name) {
		return r, holt.Errorf(holt.InvalidArgument, "no template name can be derived from %s", clip(ref)).
			WithHint(`write a recipe: {"name": "mine", "extends": "base", "from": "…"}`)
	}
	return r.resolve(0)
}

func embeddedRecipe(name string) (Recipe, error) {
	data, err := recipeFiles.ReadFile("recipes/" + name + ".json")
	if err != nil {
		return Recipe{}, unknownTemplate(name, Templates())
	}
	recipe, err := ParseRecipe(data)
	if err != nil {
		return Recipe{}, err
	}
	dir, err := fs.Sub(recipeFiles, "recipes")
	if err != nil {
		return Recipe{}, err
	}
	return recipe, recipe.readSources(dir)
}

func unknownTemplate(name string, known []string) error {
	return holt.Errorf(holt.NotFound, "there is no template %q", clip(name)).
		WithHint("templates are %s; a path to a recipe file works too", strings.Join(known, ", "))
}

// readBounded reads at most limit bytes of a file.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// resolve merges the recipes that r extends into it, sets the defaults, and checks
// the result.
func (r Recipe) resolve(depth int) (Recipe, error) {
	if r.Extends != "" {
		if depth >= maxExtends {
			return r, holt.Errorf(holt.InvalidArgument, "recipe %q extends more than 4 others", r.Name)
		}
		parent, err := embeddedRecipe(r.Extends)
		if err != nil {
			return r, err
		}
		if parent, err = parent.resolve(depth + 1); err != nil {
			return r, err
		}
		r = r.over(parent)
	}
	if r.DiskSizeMB == 0 {
		r.DiskSizeMB = defaultDiskMB
	}
	if r.HostCertificates == nil {
		yes := true
		r.HostCertificates = &yes
	}
	if !slices.ContainsFunc(r.Users, func(u User) bool { return u.Name == agentUser && u.UID == agentUID }) {
		return r, holt.Errorf(holt.InvalidArgument, "recipe %q has no user %s with uid %d", r.Name, agentUser, agentUID).
			WithHint(`extend a recipe that has it: "extends": "base"`)
	}
	return r, nil
}

// over returns r merged over parent.
func (r Recipe) over(parent Recipe) Recipe {
	r.Packages = slices.Concat(parent.Packages, r.Packages)
	r.Files = slices.Concat(parent.Files, r.Files)
	r.Users = slices.Concat(parent.Users, r.Users)
	r.Setup = slices.Concat(parent.Setup, r.Setup)
	r.KernelArgs = slices.Concat(parent.KernelArgs, r.KernelArgs)
	r.From = cmp.Or(r.From, parent.From)
	r.Engine = cmp.Or(r.Engine, parent.Engine)
	r.Services.Define = slices.Concat(parent.Services.Define, r.Services.Define)
	r.Services.Enable = slices.Concat(parent.Services.Enable, r.Services.Enable)
	r.Services.Disable = slices.Concat(parent.Services.Disable, r.Services.Disable)
	r.Services.Mask = slices.Concat(parent.Services.Mask, r.Services.Mask)
	if r.DiskSizeMB == 0 {
		r.DiskSizeMB = parent.DiskSizeMB
	}
	if r.HostCertificates == nil {
		r.HostCertificates = parent.HostCertificates
	}
	r.Extends = ""
	return r
}
