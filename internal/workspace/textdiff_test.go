package workspace

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"holt"
)

// TestUnified applies diffs of random texts with patch(1).
func TestUnified(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Fatal("install patch: ", err)
	}
	rng := rand.New(rand.NewPCG(3, 7))
	dir := t.TempDir()
	for i := range 40 {
		a := randomText(rng, nil)
		b := randomText(rng, a)
		file, diff := filepath.Join(dir, fmt.Sprint("f", i)), bytes.Buffer{}
		if err := unified(&diff, "/f", "/f", &text{data: a}, &text{data: b}); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(a, b) {
			continue
		}
		if err := os.WriteFile(file, a, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("patch", "-s", file)
		cmd.Stdin = bytes.NewReader(diff.Bytes())
		out, err := cmd.CombinedOutput()
		got, _ := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%s\n%v\n%q\nto %q\nby\n%s\ngives %q", out, err, a, b, diff.String(), got)
		}
	}
}

// randomText returns some lines, or a text changed here and there.
func randomText(rng *rand.Rand, from []byte) (b []byte) {
	lines := splitLines(from)
	if from == nil {
		for range 1 + rng.IntN(60) {
			lines = append(lines, fmt.Sprintln(rng.IntN(9)))
		}
	}
	for i, l := range lines {
		switch n := rng.IntN(12); {
		case n == 0 && from != nil:
			continue
		case n == 1 && from != nil:
			b = fmt.Appendln(b, "new", i)
		}
		b = append(b, l...)
	}
	if rng.IntN(3) == 0 {
		b = append(b, "no newline"...)
	}
	return b
}

func TestTextDiff(t *testing.T) {
	f := newFixture(t, Options{})
	f.put("text", "one\ntwo\nthree\n")
	f.put("binary", "a\x00b")
	f.put("gone", "was\n")
	const forged = "x\n@@ -1 +1 @@\n-\"\\\a\x01\xff \u00e4"
	f.put(forged, "was\n")
	f.checkpoint("c")
	f.put("text", "one\n2\nthree\n")
	f.put("binary", "a\x00c")
	f.put(forged, "is\n")
	f.ok(f.unlink("gone"))
	for path, want := range map[string]string{
		"/text":   "--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n",
		"/binary": "Binary files a/binary and b/binary differ\n",
		"/gone":   "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-was\n",
		// As git diff writes them.
		"/" + forged: `--- "a/x\n@@ -1 +1 @@\n-\"\\\a\001\377 \303\244"` + "\n" +
			`+++ "b/x\n@@ -1 +1 @@\n-\"\\\a\001\377 \303\244"` + "\n@@ -1 +1 @@\n-was\n+is\n",
	} {
		var b bytes.Buffer
		f.ok(f.w.TextDiff(context.Background(), "c", Live, path, &b))
		if b.String() != want {
			t.Errorf("%s: got %q, want %q", path, b.String(), want)
		}
	}
	if err := f.w.TextDiff(context.Background(), "c", Live, "/none", &bytes.Buffer{}); holt.CodeOf(err) != holt.NotFound {
		t.Fatal(err)
	}
}
