package authz_test

import (
	"context"
	"reflect"
	"testing"

	"holt"
	"holt/internal/api"
	"holt/internal/authz"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestEndpointsAreGuarded: every endpoint is bound, has a rule, and returns Forbidden to a computer that calls it about
// another, unless anyone may call it.
func TestEndpointsAreGuarded(t *testing.T) {
	nouns := servertest.New(t).Nouns()
	checker := authz.New(nouns)
	server := httpapi.New(httpapi.Options{Nouns: nouns, Authorize: checker})
	for _, e := range server.Registry().Unbound() {
		t.Errorf("%s is not bound", e.ID)
	}
	computer := holt.WithActor(t.Context(), holt.Actor{Computer: holt.NewComputerID(), Tenant: holt.DefaultTenant})
	for _, e := range api.All() {
		for name, ctx := range map[string]context.Context{"a person": t.Context(), "a computer": computer} {
			in := reflect.New(e.Input)
			if body := in.Elem().FieldByName("Body"); body.IsValid() && body.Kind() == reflect.Pointer {
				body.Set(reflect.New(body.Type().Elem())) // optional only until the input is parsed
			}
			_, err := checker.Check(ctx, e, in.Interface())
			switch code := holt.CodeOf(err); {
			case code == holt.Internal:
				t.Errorf("%s by %s: %v", e.ID, name, err)
			case name == "a computer" && e.Need.On != api.Anyone && code != holt.Forbidden:
				t.Errorf("%s by %s: %v", e.ID, name, err)
			}
		}
	}
}
