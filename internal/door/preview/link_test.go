package preview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holt"
)

func TestLinkTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	s, err := openKey(path)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_000_000, 0)
	token := s.sign(einstein, 3000, "serial", now.Add(time.Hour), "tok_aaaaaaaaaaaaaaaa")
	l, ok := s.check(token, einstein, 3000, "serial", now.Add(time.Hour-1))
	if !ok || l.madeBy != "tok_aaaaaaaaaaaaaaaa" || !l.end.Equal(now.Add(time.Hour)) {
		t.Fatal(l, ok)
	}
	again, err := openKey(path)
	if _, ok := again.check(token, einstein, 3000, "serial", now); err != nil || !ok {
		t.Error("the key has changed after a restart", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	other, err := openKey(path + "2")
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"over":       second(s.check(token, einstein, 3000, "serial", now.Add(time.Hour))),
		"computer":   second(s.check(token, curie, 3000, "serial", now)),
		"port":       second(s.check(token, einstein, 3001, "serial", now)),
		"serial":     second(s.check(token, einstein, 3000, "other", now)),
		"no preview": second(s.check(token, einstein, 3000, "", now)),
		"key":        second(other.check(token, einstein, 3000, "serial", now)),
		"cut":        second(s.check(token[:len(token)-1], einstein, 3000, "serial", now)),
		"longer":     second(s.check(token+"A", einstein, 3000, "serial", now)),
		"prefix":     second(s.check(token[4:], einstein, 3000, "serial", now)),
		"empty":      second(s.check("", einstein, 3000, "serial", now)),
		"long":       second(s.check(linkPrefix+strings.Repeat("A", 1<<20), einstein, 3000, "serial", now)),
	} {
		if ok {
			t.Errorf("accepted: %s", what)
		}
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openKey(path); holt.CodeOf(err) != holt.Corrupt {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // a power cut
		t.Fatal(err)
	}
	if s, err := openKey(path); err != nil || s == (signer{}) {
		t.Errorf("an empty file: %v", err)
	}
}

func second(_ linked, ok bool) bool { return ok }

// FuzzLinkTokens: only signed tokens are accepted.
func FuzzLinkTokens(f *testing.F) {
	var s signer
	now := time.Unix(1_000_000, 0)
	good := s.sign(einstein, 3000, "serial", now.Add(time.Hour), "tok_aaaaaaaaaaaaaaaa")
	f.Add(good)
	f.Add(s.sign(einstein, 3001, "serial", now.Add(time.Hour), ""))
	f.Add(linkPrefix)
	f.Fuzz(func(t *testing.T, token string) {
		if _, ok := s.check(token, einstein, 3000, "serial", now); ok && token != good {
			t.Fatalf("%q is accepted as a token", token)
		}
	})
}
