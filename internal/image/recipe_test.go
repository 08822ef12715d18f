package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holt"
)

// recipeFile returns the content of a recipe's file.
func recipeFile(t *testing.T, recipe, path string) string {
	t.Helper()
	r, err := loadRecipe(recipe)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("no file %s", path)
	}
	return r.Files[i].Content
}

func TestEmbeddedRecipes(t *testing.T) {
	if got := Templates(); !slices.Equal(got, []string{"base", "browser", "coding-agent", "docker"}) {
		t.Fatalf("templates: %q", got)
	}
	for _, name := range Templates() {
		r, err := loadRecipe(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Name != name || r.DiskSizeMB > 3072 || !*r.HostCertificates || r.Extends != "" {
			t.Errorf("%s: %+v", name, r)
		}
		for _, f := range r.Files {
			if f.Source != "" || f.Content == "" {
				t.Errorf("%s: file %s is empty, or its source is not read", name, f.Path)
			}
		}
	}
	r, err := loadRecipe("coding-agent")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"python3", "git", "curl", "nodejs", "npm", "build-essential", "sudo", "openssh-client", "ripgrep", "sqlite3"} {
		if !slices.Contains(r.Packages, p) {
			t.Errorf("coding-agent lacks %s", p)
		}
	}
}

func TestUnknownTemplate(t *testing.T) {
	for _, name := range []string{"nope", "", "..", "base.json", "./nope.json", strings.Repeat("x", 300)} {
		_, err := loadRecipe(name)
		if holt.CodeOf(err) != holt.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, err := loadRecipe("nope")
	if e := holt.AsError(err); !strings.Contains(e.Hint, "base, browser, coding-agent, docker") {
		t.Errorf("hint: %q", e.Hint)
	}
}

func TestRecipeFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mine.json")
	text := `// mine
{
  "name": "mine",
  // more
  "extends": "base",
  "packages": ["jq"],
  "files": [{"path": "/etc/motd", "content": "// not a comment\n"}],
  "kernel_args": ["quiet"],
  "host_certificates": false
}`
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := loadRecipe(name)
	if err != nil {
		t.Fatal(err)
	}
	base, err := loadRecipe("base")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(slices.Clone(base.Packages), "jq"), r.Packages); diff != "" {
		t.Error(diff)
	}
	if *r.HostCertificates || r.DiskSizeMB != base.DiskSizeMB || len(r.Users) != 1 || r.Files[0].Content != "// not a comment\n" {
		t.Errorf("got %+v", r)
	}
}

func TestBadRecipes(t *testing.T) {
	for why, text := range map[string]string{
		"not JSON":         `name: x`,
		"unknown field":    `{"name": "x", "pakages": ["jq"]}`,
		"two values":       `{"name": "x"} {"name": "y"}`,
		"no name":          `{}`,
		"bad name":         `{"name": "X/../y"}`,
		"option package":   `{"name": "x", "packages": ["--force"]}`,
		"comma package":    `{"name": "x", "packages": ["jq,evil"]}`,
		"relative file":    `{"name": "x", "files": [{"path": "etc/motd", "content": ""}]}`,
		"dotted file":      `{"name": "x", "files": [{"path": "/etc/../motd", "content": ""}]}`,
		"file in /proc":    `{"name": "x", "files": [{"path": "/proc/x", "content": ""}]}`,
		"file in the home": `{"name": "x", "files": [{"path": "/home/agent/x", "content": ""}]}`,
		"bad mode":         `{"name": "x", "files": [{"path": "/x", "mode": "9", "content": ""}]}`,
		"root":             `{"name": "x", "users": [{"name": "root", "uid": 1000}]}`,
		"system uid":       `{"name": "x", "users": [{"name": "a", "uid": 10}]}`,
		"shell injection":  `{"name": "x", "users": [{"name": "a;reboot", "uid": 1000}]}`,
		"bad unit":         `{"name": "x", "services": {"enable": ["--now x"]}}`,
		"blank in arg":     `{"name": "x", "kernel_args": ["a b"]}`,
		"tiny disk":        `{"name": "x", "disk_size_mb": 1}`,
		"empty setup":      `{"name": "x", "setup": [" "]}`,
		"too long":         `{"name": "x"}` + strings.Repeat(" ", maxRecipeBytes),
		"too many":         `{"name": "x", "packages": [` + strings.Repeat(`"jq",`, maxRecipeItems) + `"jq"]}`,
	} {
		t.Run(why, func(t *testing.T) {
			if _, err := ParseRecipe([]byte(text)); holt.CodeOf(err) != holt.InvalidArgument {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBadRecipesNameTheLine: an error in a recipe has its line.
func TestBadRecipesNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"{\n// why\n\"name\": \"x\",\n\"packages\": [\"jq\"\n\"git\"]}":                               "in line 5",
		"{\"name\": \"x\",\n\"summary\": \"pakages\",\n\n\"pakages\" : []}":                           "in line 4",
		"{\"name\": \"pakages\",\n\"packages\": [\"pakages\"],\n\"pakages\":\n[]}":                    "in line 3",
		"{\"name\": \"x\",\n\"packages\": [\"jq\",\n7\n]}":                                            "in line 3",
		"{\"name\": \"x\",\n\"packages\": [\"jq\"":                                                    "in line 2",
		"{\"name\": \"x\"}\n\n{\"name\": \"y\"}":                                                      "in line 3",
		"\n\nname: x":                                                                                 "in line 3",
		"{\"name\": \"x\",\n\"users\": [{\"name\": \"a\",\n\"uid\": 1000,\n\"sheel\": \"/bin/sh\"}]}": "in line 4",
		"": "invalid recipe: EOF",
	} {
		if _, err := ParseRecipe([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v; want %s", text, err, want)
		}
	}
}

func TestRecipeNeedsTheUser(t *testing.T) {
	r, err := ParseRecipe([]byte(`{"name": "x", "packages": ["jq"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.resolve(0); holt.CodeOf(err) != holt.InvalidArgument || !strings.Contains(err.Error(), "agent") {
		t.Errorf("got %v", err)
	}
}

func TestRecipeFileMayNotTakeAName(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	if err := os.WriteFile(name, []byte(`{"name": "base", "extends": "coding-agent"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadRecipe(name); holt.CodeOf(err) != holt.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestRecipeSources: sources are files below the recipe's directory only.
func TestRecipeSources(t *testing.T) {
	dir := t.TempDir()
	recipe := filepath.Join(dir, "recipes", "r.json")
	if err := os.MkdirAll(filepath.Join(dir, "recipes", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("recipes/below/a.sh", []byte("echo \"a\"\n"))
	write("recipes/large", make([]byte, maxRecipeBytes/2+1))
	write("secret", []byte("secret"))
	if err := os.Symlink("../secret", filepath.Join(dir, "recipes", "link")); err != nil {
		t.Fatal(err)
	}
	load := func(files string) (Recipe, error) {
		write("recipes/r.json", []byte(`{"name": "r", "extends": "base", "files": [`+files+`]}`))
		return loadRecipe(recipe)
	}
	r, err := load(`{"path": "/a", "mode": "0755", "source": "below/a.sh"}, {"path": "/b", "content": "b"}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]File{{Path: "/a", Mode: "0755", Content: "echo \"a\"\n"}, {Path: "/b", Content: "b"}}, r.Files); diff != "" {
		t.Error(diff)
	}
	if _, err := load(`{"path": "/a", "source": "large"}`); err != nil {
		t.Error(err)
	}
	for _, files := range []string{
		`{"path": "/a", "source": "../secret"}`, `{"path": "/a", "source": "link"}`, `{"path": "/a", "source": "/etc/hostname"}`,
		`{"path": "/a", "source": "absent"}`, `{"path": "/a", "source": "below"}`, `{"path": "/a", "source": "below/a.sh", "content": "b"}`,
		`{"path": "/a", "source": "large"}, {"path": "/b", "source": "large"}`,
	} {
		if _, err := load(files); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%s: %v", files, err)
		}
	}
}

func TestQuote(t *testing.T) {
	if got := quote(`it's $HOME`); got != `'it'\''s $HOME'` {
		t.Errorf("got %s", got)
	}
}

func FuzzParseRecipe(f *testing.F) {
	for _, name := range Templates() {
		data, err := recipeFiles.ReadFile("recipes/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"name": "x", "files": [{"path": "/a\u0000b", "mode": "0777", "content": "c"}], "users": [{"name":"u","uid":1000,"home":"/x'y"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRecipe(data)
		if err != nil {
			return
		}
		if script := setupScript(r, true); strings.ContainsRune(script, 0) {
			t.Error("a NUL byte in the setup script")
		}
		if err := newOverlay().guestFiles(r, nil, nil, nil); err != nil {
			t.Errorf("an overlay of a valid recipe fails: %v", err)
		}
	})
}
