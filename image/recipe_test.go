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

func TestEmbeddedRecipes(t *testing.T) {
	if got := Templates(); !slices.Equal(got, []string{"base", "coding-agent"}) {
		t.Fatalf("templates: %q", got)
	}
	for _, name := range Templates() {
		r, err := loadRecipe(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Name != name || r.DiskSizeMB > 2048 || !*r.HostCertificates || r.Extends != "" {
			t.Errorf("%s: %+v", name, r)
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
	if e := holt.AsError(err); !strings.Contains(e.Hint, "base, coding-agent") {
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

func TestQuote(t *testing.T) {
	if got := quote(`it's $HOME`); got != `'it'\''s $HOME'` {
		t.Errorf("got %s", got)
	}
}

func FuzzParseRecipe(f *testing.F) {
	for _, name := range Templates() {
		data, err := embeddedRecipe(name)
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
			t.Errorf("an accepted recipe cannot be laid out: %v", err)
		}
	})
}
