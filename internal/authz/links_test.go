package authz_test

import (
	"context"
	"strings"
	"testing"

	"holt"
	"holt/internal/api"
	"holt/internal/authz"
	"holt/internal/door/httpapi"
	"holt/internal/door/httpapi/servertest"
)

// TestLinksAreChecked: who may read an artifact creates links to it, except with a read-only token. A link is revoked by who may
// change the artifact, and by the token that created it.
func TestLinksAreChecked(t *testing.T) {
	all := servertest.New(t).Nouns()
	a := servertest.Must(all.Artifacts.Put(t.Context(), holt.ArtifactPut{Name: "report"}, strings.NewReader("x")))(t)
	guarded := httpapi.New(httpapi.Options{Nouns: all, Authorize: authz.New(all)}).Registry()
	of := api.OneArtifact{Artifact: string(a.ID)}
	create := func(ctx context.Context) (string, error) {
		l, err := api.Do(ctx, guarded, api.LinkArtifact, &api.ArtifactLinkMake{OneArtifact: of})
		return string(l.ID), err
	}
	revoke := func(ctx context.Context, link string) error {
		_, err := api.Do(ctx, guarded, api.UnlinkArtifact, &api.ArtifactLinkKeyed{OneArtifact: of, Link: link})
		return err
	}
	reader, other, writer := limited(t, "bucket:artifacts:read"), limited(t, "bucket:artifacts:read"), limited(t, "bucket:artifacts:write")
	for scope, ctx := range map[string]context.Context{"read-only": limited(t, "read-only"), "another bucket": limited(t, "bucket:releases"), "user": limited(t, "user:root"),
		"computer": holt.WithActor(t.Context(), holt.Actor{Computer: holt.NewComputerID(), Tenant: holt.DefaultTenant})} {
		if _, err := create(ctx); holt.CodeOf(err) != holt.Forbidden {
			t.Errorf("%s creates a link: %v", scope, err)
		}
	}
	for _, by := range []context.Context{reader, writer, limited(t), t.Context()} {
		for _, end := range []context.Context{by, writer} {
			id, err := create(by)
			if err != nil {
				t.Fatal(err)
			}
			if err := revoke(other, id); holt.CodeOf(err) != holt.Forbidden {
				t.Errorf("another token revokes a link: %v", err)
			}
			if err := revoke(end, id); err != nil {
				t.Error(err)
			}
		}
	}
	if left := servertest.Must(all.Artifacts.Links(t.Context(), string(a.ID)))(t); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}
