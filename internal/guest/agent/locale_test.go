package agent

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// guestWith makes the root of a guest with these files and contents.
func guestWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// archive returns a locale-archive with names, in the format of glibc's locale/locarchive.h.
func archive(names ...string) string {
	text := strings.Join(names, "\x00") + "\x00"
	var b []byte
	for _, n := range []uint32{archiveMagic, 0, archiveHead, 2, 7, archiveHead, uint32(len(text)), uint32(len(text)), 0, 0, 0, 0, 0, 0} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return string(b) + text
}

// TestMissingLocales: locales of the caller that the guest lacks are
// removed, so that its programs do not warn.
func TestMissingLocales(t *testing.T) {
	root := guestWith(t, map[string]string{
		"/usr/lib/locale/C.utf8/LC_CTYPE":     "",
		"/usr/lib/locale/en_US.utf8/LC_CTYPE": "",
		"/usr/lib/locale/locale-archive":      archive("de_DE.utf8", "de_DE", "sr_RS.utf8@latin", "de_DE.iso88591"),
	})
	for _, c := range []struct{ given, want map[string]string }{
		{map[string]string{"LANG": "fr_FR.UTF-8", "LC_ALL": "fr_FR.UTF-8", "LC_TIME": "pt_BR"}, map[string]string{"LANG": "C.UTF-8"}},
		{map[string]string{"LANG": "de_DE.UTF-8", "LC_CTYPE": "UTF-8"}, map[string]string{"LANG": "de_DE.UTF-8"}},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_ALL": "C.UTF-8", "LC_COLLATE": "C"}, map[string]string{"LANG": "en_US.UTF-8", "LC_ALL": "C.UTF-8", "LC_COLLATE": "C"}},
		{map[string]string{"LANG": "POSIX", "LC_ALL": "", "LC_NUMERIC": "de_DE", "LC_PAPER": "de_DE.ISO-8859-1", "LC_NAME": "sr_RS.UTF-8@latin"},
			map[string]string{"LANG": "POSIX", "LC_ALL": "", "LC_NUMERIC": "de_DE", "LC_PAPER": "de_DE.ISO-8859-1", "LC_NAME": "sr_RS.UTF-8@latin"}},
		{map[string]string{"LANG": "../../etc", "LC_ALL": "/", "LC_TIME": ".", "LC_NAME": "de"}, map[string]string{"LANG": "C.UTF-8"}},
		{map[string]string{"LANG": strings.Repeat("a", 1000), "LC_TERMINAL": "iTerm2", "LANGUAGE": "fr", "LC": "x"}, map[string]string{"LANG": "C.UTF-8", "LC_TERMINAL": "iTerm2", "LANGUAGE": "fr", "LC": "x"}},
	} {
		dropLocales(c.given, root)
		if diff := cmp.Diff(c.want, c.given); diff != "" {
			t.Error(diff)
		}
	}
	for _, broken := range []string{"", "\x09", archive("de_DE")[:archiveHead], strings.Repeat("\xff", 100)} {
		if hasLocale(guestWith(t, map[string]string{"/usr/lib/locale/locale-archive": broken}), "de_DE") {
			t.Errorf("found in %q", broken)
		}
	}
}
