package artifact

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holt"
	"holt/internal/idempotency"
	"holt/internal/store/db"
)

// linked is a store with one small artifact, a clock that a test moves, and its database's file.
type linked struct {
	*Store
	t    *testing.T
	file string
	late atomic.Int64
	made holt.Artifact
}

func openLinked(t *testing.T, file string) *linked {
	t.Helper()
	l := &linked{t: t, file: file}
	d, err := db.Open(file, Schema+idempotency.Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	address := func(l holt.ArtifactLink, secret string) (string, string, error) {
		return "http://x/" + secret + "/" + url.PathEscape(l.FileName), "", nil
	}
	now := func() time.Time { return time.Unix(1_000_000, l.late.Load()) }
	if l.Store, err = Open(t.Context(), Config{DB: d, Keys: idempotency.New(d), Address: address, Now: now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); d.Close() })
	return l
}

func newLinked(t *testing.T) *linked {
	t.Helper()
	l := openLinked(t, filepath.Join(t.TempDir(), "holt.db"))
	var err error
	if l.made, err = l.Put(t.Context(), holt.ArtifactPut{Name: "dir/report.txt"}, strings.NewReader("report")); err != nil {
		t.Fatal(err)
	}
	return l
}

// link makes a link and returns it with its secret.
func (l *linked) link(ctx context.Context, spec holt.ArtifactLinkSpec) (holt.ArtifactLink, string) {
	l.t.Helper()
	made, err := l.CreateLink(ctx, string(l.made.ID), spec, "")
	if err != nil {
		l.t.Fatal(err)
	}
	secret, _, _ := strings.Cut(strings.TrimPrefix(made.URL, "http://x/"), "/")
	return made, secret
}

// works reports whether a link can be opened.
func (l *linked) works(made holt.ArtifactLink, secret string) bool {
	l.t.Helper()
	got, a, err := l.OpenLink(l.t.Context(), made.ID, secret)
	if err != nil && holt.CodeOf(err) != holt.NotFound || err == nil && (got.ID != made.ID || a.ID != l.made.ID) {
		l.t.Errorf("%+v %+v %v", got, a, err)
	}
	return err == nil
}

// TestLinkSecrets: a link opens with its secret only, which the database does not have.
func TestLinkSecrets(t *testing.T) {
	l := newLinked(t)
	made, secret := l.link(t.Context(), holt.ArtifactLinkSpec{})
	other, _ := l.link(t.Context(), holt.ArtifactLinkSpec{})
	if len(secret) != 27 || made.FileName != "report.txt" || !l.works(made, secret) || l.works(other, secret) || l.works(made, secret[1:]) || l.works(made, secret+"A") || l.works(made, "") || l.works(holt.ArtifactLink{ID: "lnk_aaaaaaaaaaaaaaaa"}, secret) {
		t.Errorf("%+v with %q", made, secret)
	}
	for _, ending := range []string{"", "-wal"} {
		if b, err := os.ReadFile(l.file + ending); err != nil || strings.Contains(string(b), secret) {
			t.Errorf("%s has the secret (%v)", ending, err)
		}
	}
}

// TestLinkOnce: of many downloads at once by a link for one, one begins; a daemon that is killed then has it as used.
func TestLinkOnce(t *testing.T) {
	l := newLinked(t)
	made, secret := l.link(t.Context(), holt.ArtifactLinkSpec{Once: true})
	var begun atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			switch err := l.UseLink(t.Context(), made); {
			case err == nil:
				begun.Add(1)
			case holt.CodeOf(err) != holt.NotFound:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if begun.Load() != 1 || l.works(made, secret) {
		t.Errorf("%d downloads began", begun.Load())
	}
	killed := filepath.Join(t.TempDir(), "holt.db") // the files as they are before anything is closed
	for _, ending := range []string{"", "-wal"} {
		b, err := os.ReadFile(l.file + ending)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(killed+ending, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := openLinked(t, killed)
	next.made = l.made
	if all, err := next.Links(t.Context(), string(l.made.ID)); err != nil || len(all) != 1 || all[0].Used != 1 || next.works(made, secret) {
		t.Errorf("after a kill: %+v %v", all, err)
	}
	many, _ := l.link(t.Context(), holt.ArtifactLinkSpec{})
	for range 3 {
		if err := l.UseLink(t.Context(), many); err != nil {
			t.Error(err)
		}
	}
}

// TestLinkExpires: at its end a link does not work, is not listed, and its row is removed.
func TestLinkExpires(t *testing.T) {
	l := newLinked(t)
	made, secret := l.link(t.Context(), holt.ArtifactLinkSpec{ExpiresInMS: 60_000})
	l.late.Store(int64(time.Minute) - 1)
	if !l.works(made, secret) {
		t.Error("it ends too early")
	}
	l.late.Store(int64(time.Minute))
	all, err := l.Links(t.Context(), string(l.made.ID))
	if err != nil || len(all) != 0 || l.works(made, secret) || holt.CodeOf(l.UseLink(t.Context(), made)) != holt.NotFound {
		t.Errorf("it has not ended: %+v %v", all, err)
	}
	if n := l.count(); n != 1 {
		t.Errorf("%d rows", n)
	}
	if l.expire(); l.count() != 0 {
		t.Error("its row is left")
	}
	l.late.Store(0)
	until := time.Unix(1_000_000, 0).Add(time.Hour)
	short, _ := l.link(holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: holt.DefaultTenant, Expires: until}), holt.ArtifactLinkSpec{})
	if !short.ExpiresAt.Equal(until) || short.TokenID != "tok_aaaaaaaaaaaaaaaa" {
		t.Errorf("it outlives the token that made it: %+v", short)
	}
}

func (l *linked) count() (n int64) {
	l.t.Helper()
	err := l.cfg.DB.Read(l.t.Context(), func(tx *db.Tx) error {
		return tx.Query(`SELECT count(*) FROM artifact_link`, nil, func(r *db.Row) error { n = r.Int64(0); return nil })
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

// TestLinkBounds: an artifact has so many links, other tenants do not reach them, and they are deleted with it.
func TestLinkBounds(t *testing.T) {
	l := newLinked(t)
	made, secret := l.link(t.Context(), holt.ArtifactLinkSpec{})
	other := holt.WithActor(t.Context(), holt.Actor{Token: "tok_aaaaaaaaaaaaaaaa", Tenant: "acme"})
	_, err := l.CreateLink(other, string(l.made.ID), holt.ArtifactLinkSpec{}, "")
	_, list := l.Links(other, string(l.made.ID))
	if gone := l.DeleteLink(other, string(l.made.ID), string(made.ID), ""); holt.CodeOf(err) != holt.NotFound || holt.CodeOf(list) != holt.NotFound || holt.CodeOf(gone) != holt.NotFound || !l.works(made, secret) {
		t.Errorf("another tenant: %v, %v, %v", err, list, gone)
	}
	err = l.cfg.DB.Write(t.Context(), func(tx *db.Tx) error {
		return tx.Exec(`WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO artifact_link SELECT 'lnk_' || i, artifact, hash, file, once, shown, created, expires, maker, token, used, last FROM artifact_link, n`, holt.MostArtifactLinks)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.CreateLink(t.Context(), string(l.made.ID), holt.ArtifactLinkSpec{}, ""); holt.CodeOf(err) != holt.TooMany {
		t.Errorf("one more than %d: %v", l.count(), err)
	}
	if err := l.Delete(t.Context(), string(l.made.ID), ""); err != nil || l.count() != 0 || l.works(made, secret) {
		t.Errorf("%d links of a deleted artifact: %v", l.count(), err)
	}
}
