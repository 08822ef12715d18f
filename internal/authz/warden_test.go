package authz_test

import (
	"reflect"
	"slices"
	"testing"

	"holt/internal/authz"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestNounsAreGuarded: every noun that the doors can call asks first. That each of its methods does, the
// compiler sees to: no type here embeds another, so a method without a decision is missing.
func TestNounsAreGuarded(t *testing.T) {
	m := servertest.New(t.TempDir())
	t.Cleanup(m.Close)
	guarded := reflect.ValueOf(authz.Around(m.Nouns()))
	for i := range guarded.NumField() {
		name, f := guarded.Type().Field(i).Name, guarded.Field(i)
		if f.IsNil() {
			t.Errorf("%s is not guarded", name)
			continue
		}
		of := f.Elem().Type()
		if slices.Contains([]string{"Files", "Workspaces", "WorkspaceFiles", "History", "Archive", "Images", "Schedules", "SSH", "SSHKeys", "Previews", "Events", "Uploads", "Tokens", "Audit", "Daemon"}, name) {
			continue // the registry checks the need of each endpoint
		}
		if of.PkgPath() != "holt/internal/authz" {
			t.Errorf("%s is %s: nobody asks", name, of)
		}
		if of.Kind() != reflect.Struct || of.NumField() != 1 || of.Field(0).Anonymous {
			t.Errorf("%s is %s, which may have methods that nobody has decided on", name, of)
		}
	}
	if n := reflect.TypeFor[httpapi.Nouns]().NumField(); n != guarded.NumField() {
		t.Errorf("%d nouns, %d guarded", n, guarded.NumField())
	}
}

// TestConformanceThroughWarden: a person sees no difference.
func TestConformanceThroughWarden(t *testing.T) {
	servertest.Conformance(t, func(t *testing.T) httpapi.Nouns {
		m := servertest.New(t.TempDir())
		t.Cleanup(m.Close)
		return authz.Around(m.Nouns())
	})
}
