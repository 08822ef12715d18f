package authz_test

import (
	"reflect"
	"testing"

	"holt/internal/authz"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestNounsAreGuarded: every noun that the doors can call asks first. That each of its methods does, the
// compiler sees to: no type here embeds another, so a method without a decision is missing.
func TestNounsAreGuarded(t *testing.T) {
	guarded := reflect.ValueOf(authz.Around(servertest.Open(t).Nouns()))
	for i := range guarded.NumField() {
		name, f := guarded.Type().Field(i).Name, guarded.Field(i)
		if f.IsNil() {
			t.Errorf("%s is not guarded", name)
			continue
		}
		of := f.Elem().Type()
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
