package network

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt/internal/network/netstack"
)

// TestInherit: a fork's network has the names of its parent's. Missing and unreadable files have none.
func TestInherit(t *testing.T) {
	n, parent, fork := New(Options{}), t.TempDir(), t.TempDir()
	if err := n.Inherit(filepath.Join(parent, "gone"), fork); err != nil {
		t.Error("of a machine that is gone:", err)
	}
	if err := n.Inherit(parent, fork); err != nil {
		t.Error("of one that knows none:", err)
	}
	now := time.Now().UTC()
	knows := names{Rested: now, Known: []netstack.Known{{Name: "registry.example", Address: registry.Addr(), Until: now.Add(time.Minute)}}}
	if err := replace(parent, namesFile, knows); err != nil {
		t.Fatal(err)
	}
	if err := n.Inherit(parent, fork); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(fork, namesFile))
	if err != nil {
		t.Fatal(err)
	}
	var has names
	if err := json.Unmarshal(b, &has); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(knows, has, cmp.Comparer(func(a, b netstack.Known) bool {
		return a.Name == b.Name && a.Address == b.Address && a.Until.Equal(b.Until)
	})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"{", `{"known":[{}` + strings.Repeat(",{}", mostListed) + `]}`, `{"known":{}}`} {
		if err := os.WriteFile(filepath.Join(parent, namesFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := n.Inherit(parent, fork); err == nil {
			t.Error("an unreadable file is copied")
		}
	}
}
