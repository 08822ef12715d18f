package servertest

import (
	"testing"

	"holt"
	"holt/internal/nouns"
)

// tokenVerbs makes tokens, with the secret in the first answer alone.
func tokenVerbs(t *testing.T, n nouns.Set) {
	ctx := t.Context()
	before := len(Must(n.Tokens.List(ctx))(t))
	c := newComputer(t, n, "einstein")
	spec := holt.TokenSpec{Name: "ci", LifeMS: 3_600_000, Scopes: []holt.Scope{"read-only", holt.Scope("computer:" + string(c.ID)), "user:agent"}}
	made := Must(n.Tokens.Create(ctx, spec, "one"))(t)
	if made.Secret == "" || made.Name != "ci" || made.Tenant != holt.DefaultTenant || len(made.Scopes) != 3 || made.ExpiresAt == nil || made.ExpiresAt.Sub(made.CreatedAt).Hours() != 1 {
		t.Errorf("made %+v", made.Token)
	}
	if again := Must(n.Tokens.Create(ctx, spec, "one"))(t); again.ID != made.ID || again.Secret != "" {
		t.Errorf("a repeated call made %s and told the secret: %v", again.ID, again.Secret != "")
	}
	other := Must(n.Tokens.Create(ctx, holt.TokenSpec{Name: "ci"}, ""))(t)
	if other.ID == made.ID || other.ExpiresAt != nil || other.Scopes == nil || len(other.Scopes) != 0 {
		t.Errorf("made %+v", other.Token)
	}
	_, err := n.Tokens.Get(ctx, "ci")
	WantCode(t, err, holt.Conflict)
	if got := Must(n.Tokens.Get(ctx, string(made.ID)))(t); got.ID != made.ID || len(got.Scopes) != 3 {
		t.Errorf("got %+v", got)
	}
	if all := Must(n.Tokens.List(ctx))(t); len(all) != before+2 {
		t.Errorf("%d tokens", len(all)-before)
	}
	for range 2 {
		fail(t, n.Tokens.Delete(ctx, string(made.ID), "two"))
	}
	WantCode(t, n.Tokens.Delete(ctx, string(made.ID), ""), holt.NotFound)
	s3KeyVerbs(t, n, other.ID)
	_, err = n.Tokens.Get(ctx, string(made.ID))
	WantCode(t, err, holt.NotFound)
	fail(t, n.Tokens.Delete(ctx, "ci", ""))
	for scope, code := range map[holt.Scope]holt.Code{"repo:site": holt.Unsupported, "bucket:reports:raed": holt.InvalidArgument, "everything": holt.InvalidArgument, "user:Root!": holt.InvalidArgument} {
		_, err = n.Tokens.Create(ctx, holt.TokenSpec{Name: "bad", Scopes: []holt.Scope{scope}}, "")
		WantCode(t, err, code)
	}
	_, err = n.Tokens.Create(ctx, holt.TokenSpec{}, "")
	WantCode(t, err, holt.InvalidArgument)
}

// s3KeyVerbs makes S3 keys of a token: a repeated call gets the same, and only those answers have the secret.
func s3KeyVerbs(t *testing.T, n nouns.Set, token holt.TokenID) {
	ctx := t.Context()
	one := Must(n.S3Keys.Create(ctx, string(token), "s3-one"))(t)
	if again := Must(n.S3Keys.Create(ctx, string(token), "s3-one"))(t); again != one || one.Secret == "" || one.Token != token {
		t.Errorf("made %+v, and then %+v", one, again)
	}
	two := Must(n.S3Keys.Create(ctx, string(token), ""))(t)
	if two.ID == one.ID || two.Secret == one.Secret {
		t.Errorf("made %s and %s", one.ID, two.ID)
	}
	if got := Must(n.S3Keys.Get(ctx, one.ID))(t); got != one.S3Key {
		t.Errorf("got %+v, not %+v", got, one.S3Key)
	}
	if all := Must(n.S3Keys.List(ctx))(t); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	for range 2 {
		fail(t, n.S3Keys.Delete(ctx, one.ID, "s3-gone"))
	}
	WantCode(t, n.S3Keys.Delete(ctx, one.ID, ""), holt.NotFound)
	_, err := n.S3Keys.Create(ctx, "nobody", "")
	WantCode(t, err, holt.NotFound)
}
