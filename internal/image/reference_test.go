package image

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holt"
)

// TestReferenceMeansOneImage: two references with the same last part, and so the same template name,
// are not mistaken for one another.
func TestReferenceMeansOneImage(t *testing.T) {
	s := openStore(t)
	rec := plant(t, s, "app-1", strings.Repeat("a", 64))
	rec.From = "docker://alice/app:1"
	if err := writeJSON(filepath.Join(s.rootDir(rec.Digest), rootRecord), rec); err != nil {
		t.Fatal(err)
	}
	if got, err := s.find("docker://alice/app:1"); err != nil || got.Digest != rec.Digest {
		t.Errorf("%+v %v", got, err)
	}
	for _, other := range []string{"docker://bob/app:1", "docker://alice/app:1@sha256:" + strings.Repeat("b", 64)} {
		if _, err := s.find(other); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("%s: %v", other, err)
		}
	}
	if _, err := s.Build(t.Context(), "docker://bob/app:1", nil); holt.CodeOf(err) != holt.AlreadyExists || !strings.Contains(holt.AsError(err).Hint, "delete app-1") {
		t.Errorf("%v", err)
	}
	if got, err := s.find("app-1"); err != nil || got.From != rec.From {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPasswordsAreKeptFromOthers(t *testing.T) {
	lines := []string{"PATH=/bin", "http_proxy=http://me:secret@proxy:1", "https_proxy=http://proxy:1", `Acquire::http::Proxy "http://me@proxy/";`, "X=a@b"}
	if got := withoutPasswords(lines, true); !slices.Equal(got, []string{lines[0], lines[2], lines[4]}) {
		t.Errorf("%q", got)
	}
	if got := withoutPasswords(lines, false); !slices.Equal(got, lines) {
		t.Errorf("%q", got)
	}
}

// TestOutOfSpaceIsNotWrapped: noSpace keeps an OutOfSpace error that names the disk.
func TestOutOfSpaceIsNotWrapped(t *testing.T) {
	full := &holt.Error{Code: holt.OutOfSpace, Message: "here"}
	if err := noSpace(full, "/images"); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
}
