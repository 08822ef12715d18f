package client_test

import (
	"testing"

	"holt"
	"holt/client"
	"holt/internal/door/httpapi/servertest"
)

// TestScansNeedAnAdmin: a token of a tenant sets buckets, but neither sets, removes nor sees a scan.
func TestScansNeedAnAdmin(t *testing.T) {
	of := servertest.New(t)
	opt := servertest.Options(t, of.Nouns())
	opt.Tokens, opt.Authorize = of.Tokens(), of.Authorizer()
	d := servertest.Serve(t, opt, "")
	ctx, scan, none, keep := t.Context(), "/bin/true", "", 5
	as := func(name string, scopes ...holt.Scope) *client.Client {
		token := servertest.Must(of.Nouns().Tokens.Create(ctx, holt.TokenSpec{Name: name, Scopes: scopes}, ""))(t)
		c, err := client.New(client.Options{Host: d.Addr, Token: token.Secret})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	admin, user := as("admin", "admin"), as("user")
	servertest.Must(user.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "b"}, ""))(t)
	servertest.Must(admin.Artifacts.UpdateBucket(ctx, "b", holt.BucketChange{Scan: &scan}, ""))(t)
	_, err := user.Artifacts.CreateBucket(ctx, holt.BucketSpec{Name: "c", Scan: scan}, "")
	servertest.WantCode(t, err, holt.Forbidden)
	_, err = user.Artifacts.UpdateBucket(ctx, "b", holt.BucketChange{Scan: &none}, "")
	servertest.WantCode(t, err, holt.Forbidden)
	if b := servertest.Must(user.Artifacts.UpdateBucket(ctx, "b", holt.BucketChange{Keep: &keep}, ""))(t); b.Keep != 5 || !b.Scanned || b.Scan != "" {
		t.Errorf("a user sees %+v", b)
	}
	if b := servertest.Must(admin.Artifacts.Bucket(ctx, "b"))(t); b.Scan != scan || b.Keep != 5 {
		t.Errorf("an admin sees %+v", b)
	}
	_, err = as("narrow", "bucket:b:write").Artifacts.UpdateBucket(ctx, "b", holt.BucketChange{Keep: &keep}, "")
	servertest.WantCode(t, err, holt.Forbidden)
}
