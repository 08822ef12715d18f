package access

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
	"holt/internal/store/db"
)

func open(t *testing.T) (*Tokens, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holt.db")
	d, err := db.Open(path, Schema, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return New(d), path
}

func create(t *testing.T, tokens *Tokens, name string, life time.Duration) (Token, string) {
	t.Helper()
	token, secret, err := tokens.Create(t.Context(), name, life)
	if err != nil {
		t.Fatal(err)
	}
	return token, secret
}

func TestTokenLife(t *testing.T) {
	tokens, _ := open(t)
	now := time.Unix(1_000_000, 0).UTC()
	tokens.now = func() time.Time { return now }
	admin, secret := create(t, tokens, "admin", 0)
	brief, briefSecret := create(t, tokens, "brief", time.Hour)
	if secret == briefSecret || admin.ExpiresAt != nil || !brief.ExpiresAt.Equal(now.Add(time.Hour)) {
		t.Fatal(admin, brief)
	}
	got, err := tokens.Check(t.Context(), secret)
	if err != nil || got.ID != admin.ID || !got.LastUsedAt.Equal(now) {
		t.Fatal(got, err)
	}
	now = now.Add(time.Hour - 1)
	if got, err := tokens.Check(t.Context(), briefSecret); err != nil || got.ID != brief.ID {
		t.Fatal(got, err)
	}
	now = now.Add(1)
	if _, err := tokens.Check(t.Context(), briefSecret); holt.CodeOf(err) != holt.Unauthenticated {
		t.Fatal("an expired token:", err)
	}
	list, err := tokens.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	if err := tokens.Delete(t.Context(), admin.ID); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Delete(t.Context(), admin.ID); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
	if _, err := tokens.Check(t.Context(), secret); holt.CodeOf(err) != holt.Unauthenticated {
		t.Fatal("a revoked token:", err)
	}
}

// TestWrongSecrets: every wrong secret gets the same error.
func TestWrongSecrets(t *testing.T) {
	tokens, _ := open(t)
	_, secret := create(t, tokens, "admin", 0)
	_, other := create(t, tokens, "other", 0)
	var messages []string
	for _, wrong := range []string{
		"", "x", "holt_", secret[1:], secret + "a", strings.ToUpper(secret), secret[:len(secret)-1] + "!",
		secret[:len(prefix)+idChars] + other[len(prefix)+idChars:],
		prefix + strings.Repeat("a", idChars) + secret[len(prefix)+idChars:],
		strings.Repeat("a", 1<<20), "holt_'; DROP TABLE token; --" + strings.Repeat("x", 46),
	} {
		_, err := tokens.Check(t.Context(), wrong)
		if holt.CodeOf(err) != holt.Unauthenticated {
			t.Errorf("%.40q: %v", wrong, err)
			continue
		}
		messages = append(messages, err.Error())
	}
	for _, m := range messages {
		if m != messages[0] {
			t.Error(cmp.Diff(messages[0], m))
		}
	}
	if _, err := tokens.Check(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

func TestSecretIsNotStored(t *testing.T) {
	tokens, path := open(t)
	_, secret := create(t, tokens, "admin", 0)
	key := secret[len(prefix)+idChars+1:]
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), key) {
			t.Errorf("%s holds the secret", f)
		}
	}
}

func TestBadTokens(t *testing.T) {
	tokens, _ := open(t)
	for _, c := range []struct {
		name string
		life time.Duration
	}{{"", 0}, {strings.Repeat("n", mostName+1), 0}, {"tab\t", 0}, {"escape\x1b[31m", 0}, {"ok", -1}} {
		if _, _, err := tokens.Create(t.Context(), c.name, c.life); holt.CodeOf(err) != holt.InvalidArgument {
			t.Errorf("%q %v: %v", c.name, c.life, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := tokens.Create(ctx, "late", 0); err == nil {
		t.Error("the token is created although its context has ended")
	}
}

// TestNoOrphans: a token that is made while its maker is revoked is revoked too or is not made. An expired token makes
// none.
func TestNoOrphans(t *testing.T) {
	tokens, _ := open(t)
	for range 5 {
		maker, _ := create(t, tokens, "maker", 0)
		by := holt.WithActor(context.Background(), maker.Actor()) // not ended by the revocation: a call after its last check
		made, stop := make(chan struct{}, 1000), make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					_, _, err := tokens.Create(by, "child", 0)
					if err != nil && holt.CodeOf(err) != holt.Unauthenticated {
						t.Error(err)
						return
					}
					select {
					case <-stop:
						return
					case made <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 20 {
			<-made
		}
		if err := tokens.Delete(t.Context(), maker.ID); err != nil {
			t.Fatal(err)
		}
		for range cap(made) / 10 {
			<-made
		}
		close(stop)
		wg.Wait()
		if all, err := tokens.List(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("%d tokens have outlived their maker, %v", len(all), err)
		}
	}
	now := time.Unix(1_000_000, 0).UTC()
	tokens.now = func() time.Time { return now }
	brief, _ := create(t, tokens, "brief", time.Hour)
	now = now.Add(time.Hour)
	if _, _, err := tokens.Create(holt.WithActor(t.Context(), brief.Actor()), "late", 0); holt.CodeOf(err) != holt.Unauthenticated {
		t.Errorf("made by a token that has expired: %v", err)
	}
}

// TestExpiredTokensMakeRoom: expired tokens do not count towards the limit of a tenant, are deleted after a week, and are
// no more than the limit. The limit of one tenant does not affect another.
func TestExpiredTokensMakeRoom(t *testing.T) {
	tokens, _ := open(t)
	now := time.Unix(1_000_000, 0).UTC()
	tokens.now = func() time.Time { return now }
	has := func(want int) {
		t.Helper()
		if all, err := tokens.List(holt.WithActor(t.Context(), holt.Actor{Tenant: "team-a"})); err != nil || len(all) != want {
			t.Fatalf("there are %d tokens, not %d; %v", len(all), want, err)
		}
	}
	session := func(life time.Duration) error {
		_, _, err := tokens.CreateFor(t.Context(), "team-a", "session", life)
		return err
	}
	beside, _ := create(t, tokens, "another tenant's", time.Hour)
	for range 3 {
		for range mostTokens {
			if err := session(time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if err := session(time.Hour); holt.CodeOf(err) != holt.TooMany || !strings.Contains(err.Error(), "team-a has 1000 tokens") {
			t.Fatalf("one token too many: %v", err)
		}
		now = now.Add(time.Hour)
	}
	has(2 * mostTokens) // the first round's went when the third was made
	create(t, tokens, "of another tenant", 0)
	now = now.Add(expiredKept - 1)
	if err := session(0); err != nil {
		t.Fatal(err)
	}
	has(mostTokens + 1)
	now = now.Add(1)
	if err := session(0); err != nil {
		t.Fatal(err)
	}
	has(2)
	if got, err := tokens.Get(t.Context(), string(beside.ID)); err != nil || got.ID != beside.ID {
		t.Error("another tenant's went too:", err)
	}
}

// TestChildExpiresWithItsMaker: a token expires no later than its maker, even if it was to have no expiry.
func TestChildExpiresWithItsMaker(t *testing.T) {
	tokens, _ := open(t)
	maker, _ := create(t, tokens, "maker", time.Hour)
	for _, life := range []time.Duration{0, 2 * time.Hour} {
		child, _, err := tokens.Create(holt.WithActor(t.Context(), maker.Actor()), "child", life)
		if err != nil || child.ExpiresAt == nil || !child.ExpiresAt.Equal(*maker.ExpiresAt) {
			t.Errorf("one of %s expires %v, its maker %v; %v", life, child.ExpiresAt, maker.ExpiresAt, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	d, err := db.Open(filepath.Join(f.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	tokens := New(d)
	_, secret, err := tokens.Create(context.Background(), "admin", 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("holt_aaaaaaaaaaaaaaaa_" + strings.Repeat("b", 52))
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := tokens.Check(t.Context(), s); err == nil && s != secret {
			t.Fatalf("%q is accepted as a secret", s)
		}
	})
}

// BenchmarkCheckWrong measures the check of a well-formed token that does not exist.
func BenchmarkCheckWrong(b *testing.B) {
	d, err := db.Open(filepath.Join(b.TempDir(), "holt.db"), Schema, "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	tokens, wrong := New(d), "holt_aaaaaaaaaaaaaaaa_"+strings.Repeat("b", 52)
	for b.Loop() {
		if _, err := tokens.Check(b.Context(), wrong); err == nil {
			b.Fatal("it is valid")
		}
	}
}
