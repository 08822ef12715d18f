package image

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holt"
)

func openStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), Options{GuestBinary: []byte("guest")})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plant adds a root disk to the store as a build would.
func plant(t *testing.T, s *Store, template, digest string) record {
	t.Helper()
	rec := record{Template: template, Digest: digest, Kernel: "k", DiskMB: 256, BuiltAt: time.Now().UTC().Truncate(0)}
	dir := filepath.Join(s.dir, "tmp", "planted")
	if err := os.MkdirAll(filepath.Join(dir, kernelModules), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, rootRecord), rec); err != nil {
		t.Fatal(err)
	}
	if err := publish(dir, s.rootDir(digest)); err != nil {
		t.Fatal(err)
	}
	if err := s.setTemplate(t.Context(), template, digest, false); err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestGetBeforeBuild(t *testing.T) {
	s := openStore(t)
	for _, ref := range []string{"base", "nope", "../base", strings.Repeat("0", 64), strings.Repeat("x", 300)} {
		if _, err := s.Get(t.Context(), ref); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("Get(%.20q): %v", ref, err)
		}
		if _, err := s.Delete(t.Context(), ref); holt.CodeOf(err) != holt.NotFound {
			t.Errorf("Delete(%.20q): %v", ref, err)
		}
	}
	_, err := s.Get(t.Context(), "base")
	if e := holt.AsError(err); e.Hint != "holt image build base" {
		t.Errorf("hint: %q", e.Hint)
	}
}

func TestLife(t *testing.T) {
	s := openStore(t)
	old, now := strings.Repeat("a", 64), strings.Repeat("b", 64)
	plant(t, s, "mine", old)
	plant(t, s, "mine", now)
	im, err := s.Get(t.Context(), "mine")
	if err != nil || im.Digest != now || im.MinDiskMB != 256 {
		t.Fatalf("got %+v, %v", im, err)
	}
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Template)
	}
	if diff := cmp.Diff([]string{"base", "browser", "coding-agent", "docker", "mine", "mine"}, names); diff != "" {
		t.Error(diff)
	}
	if gone, err := s.Prune(t.Context()); err != nil || len(gone) != 1 || gone[0].Digest != old {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	if gone, err := s.Delete(t.Context(), "mine"); err != nil || gone.Digest != now {
		t.Fatal(gone, err)
	}
	if _, err := s.Get(t.Context(), now); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a deleted image: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(s.dir, "tmp")); err != nil || len(entries) != 0 {
		t.Errorf("tmp has %d entries, %v", len(entries), err)
	}
}

// TestHeldImagesStay: of two daemons that share a store, neither removes an image that a disk of the other uses.
func TestHeldImagesStay(t *testing.T) {
	s := openStore(t)
	other, err := Open(s.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	old, now := strings.Repeat("a", 64), strings.Repeat("b", 64)
	plant(t, s, "mine", old)
	computer := filepath.Join(t.TempDir(), "computers", string(holt.NewComputerID()))
	if err := os.MkdirAll(computer, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Hold(t.Context(), old, computer); err != nil {
			t.Fatal(err)
		}
	}
	plant(t, s, "mine", now)
	if gone, err := other.Prune(t.Context()); err != nil || len(gone) != 0 {
		t.Errorf("pruned an image in use: %+v, %v", gone, err)
	}
	if _, err := other.Delete(t.Context(), old[:12]); holt.CodeOf(err) != holt.Conflict || !strings.Contains(err.Error(), computer) {
		t.Errorf("deleted an image in use: %v", err)
	} else if hint := holt.AsError(err).Hint; !strings.Contains(hint, "holt computer get "+filepath.Base(computer)+" shows") {
		t.Errorf("its hint: %s", hint)
	}
	if _, err := other.Get(t.Context(), "nosuch"); holt.CodeOf(err) != holt.NotFound || !strings.Contains(holt.AsError(err).Hint, "base, browser, coding-agent, docker, mine;") {
		t.Errorf("a template that does not exist: %+v", holt.AsError(err))
	}
	list, err := other.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if want := map[string]int{old: 1}[i.Digest]; i.Computers != want {
			t.Errorf("%s has %d computers, want %d", i.Digest, i.Computers, want)
		}
	}
	if err := os.RemoveAll(filepath.Dir(computer)); err != nil { // the whole data directory may go
		t.Fatal(err)
	}
	if gone, err := other.Prune(t.Context()); err != nil || len(gone) != 1 || gone[0].Digest != old {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	if err := s.Hold(t.Context(), old, computer); holt.CodeOf(err) != holt.NotFound {
		t.Errorf("a hold of an image that does not exist: %v", err)
	}
	if _, err := s.Get(t.Context(), now); err != nil {
		t.Error(err)
	}
}

func TestPublishKeepsTheFirst(t *testing.T) {
	s := openStore(t)
	first := plant(t, s, "mine", strings.Repeat("a", 64))
	plant(t, s, "mine", strings.Repeat("a", 64))
	got, err := s.record(first.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" {
		t.Error(diff)
	}
}

func TestDamagedRecord(t *testing.T) {
	s := openStore(t)
	rec := plant(t, s, "mine", strings.Repeat("a", 64))
	if err := os.WriteFile(filepath.Join(s.rootDir(rec.Digest), rootRecord), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "mine"); holt.CodeOf(err) != holt.Corrupt {
		t.Errorf("got %v", err)
	}
}

// TestSweep: sweep keeps the directory of a running build and removes the others.
func TestSweep(t *testing.T) {
	s := openStore(t)
	alive, err := s.newScratch(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", "lockless"} {
		if err := os.MkdirAll(filepath.Join(s.dir, "tmp", name, "work", "tree"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "tmp", "killed.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.dir, Options{}); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(left) != 2 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := alive.remove(); err != nil {
		t.Fatal(err)
	}
	if left, err = os.ReadDir(filepath.Join(s.dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("left after the build: %v, %v", left, err)
	}
}

func TestPlanDigest(t *testing.T) {
	digest := func(change func(*plan)) string {
		p := plan{Name: "x", Packages: []string{"jq"}, Overlay: []byte("tar"), DiskMB: 256}
		change(&p)
		d, err := p.digest()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(func(*plan) {})
	for name, change := range map[string]func(*plan){
		"packages": func(p *plan) { p.Packages = append(p.Packages, "git") },
		"files":    func(p *plan) { p.Overlay = []byte("other") },
		"disk":     func(p *plan) { p.DiskMB++ },
		"sources":  func(p *plan) { p.Sources = []source{{URI: "http://x/debian"}} },
		"setup":    func(p *plan) { p.Setup = "true" },
	} {
		if digest(change) == same {
			t.Errorf("%s: the digest stays the same", name)
		}
	}
	if digest(func(p *plan) { p.Args = []string{"quiet"} }) != same {
		t.Error("kernel arguments are not on the disk, but change its digest")
	}
}

func TestPlanIsStable(t *testing.T) {
	r, err := loadRecipe("base")
	if err != nil {
		t.Fatal(err)
	}
	var first string
	for range 3 {
		p, err := newPlan(r, Options{}, discard())
		if err != nil {
			t.Fatal(err)
		}
		d, err := p.digest()
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = d
		}
		if d != first {
			t.Fatal("the same recipe on the same host has two digests")
		}
	}
}

// certificate returns a self-signed certificate in PEM.
func certificate(t *testing.T, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestExtraCertificates(t *testing.T) {
	dir := t.TempDir()
	debian, company := certificate(t, 1), certificate(t, 2)
	junk := []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
	bundle := filepath.Join(dir, "bundle.crt")
	if err := os.WriteFile(bundle, slices.Concat(debian, junk, company, company), 0o644); err != nil {
		t.Fatal(err)
	}
	distro := filepath.Join(dir, "distro/mozilla")
	if err := os.MkdirAll(distro, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(distro, "debian.crt"), debian, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := extraCertificates(bundle, filepath.Dir(distro))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, company) {
		t.Errorf("got %s", got)
	}
	if got, err = extraCertificates(filepath.Join(dir, "absent"), distro); err != nil || len(got) != 0 {
		t.Errorf("no bundle: %s, %v", got, err)
	}
}

func TestGuestEnv(t *testing.T) {
	getenv := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	env, dropped := guestEnv(nil, getenv(nil))
	if !slices.Equal(env, []string{"LANG=C.UTF-8"}) || len(dropped) != 0 {
		t.Errorf("plain: %q, %q", env, dropped)
	}
	env, _ = guestEnv([]byte("x"), getenv(nil))
	if !slices.Contains(env, "NODE_EXTRA_CA_CERTS="+extraBundle) {
		t.Errorf("certificates: %q", env)
	}
	env, dropped = guestEnv(nil, getenv(map[string]string{
		"http_proxy": "http://proxy.example:3128", "HTTP_PROXY": "http://me:secret@proxy.example:3128",
		"https_proxy": "http://127.0.0.1:3128", "HTTPS_PROXY": "http://[::1]:3128", "no_proxy": "example",
	}))
	if !slices.Contains(env, "http_proxy=http://proxy.example:3128") || !slices.Contains(env, "no_proxy=example") {
		t.Errorf("proxies: %q", env)
	}
	if !slices.Equal(dropped, []string{"HTTP_PROXY", "https_proxy", "HTTPS_PROXY"}) || strings.Contains(strings.Join(env, " "), "secret") {
		t.Errorf("dropped: %q of %q", dropped, env)
	}
}

func TestWatcher(t *testing.T) {
	var got []float64
	w := &watcher{log: func(string) {}, report: func(_, _ string, f float64) { got = append(got, f) }}
	for line := range strings.Lines(`I: downloading packages with apt...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://x/debian bookworm/main amd64 a amd64 1 [1 kB]
Get:2 http://x/debian bookworm/main amd64 b amd64 1 [1 kB]
I: installing remaining packages inside the chroot...
Setting up a (1) ...
holt: setup 2 of 3
cp: error writing 'x': No space left on device
E: Failed to fetch http://x  Could not resolve 'x'
`) {
		w.line(strings.TrimSuffix(line, "\n"))
	}
	if !slices.IsSorted(got) || len(got) != 6 {
		t.Errorf("fractions: %v", got)
	}
	if w.step != "setup 2 of 3" || !w.noSpace || w.unreachable == "" {
		t.Errorf("diagnosis: %+v", w)
	}
}

func TestLineWriter(t *testing.T) {
	var got []string
	w := &lineWriter{line: func(s string) { got = append(got, s) }}
	for _, s := range []string{"a", "b\nc\r", "\n", strings.Repeat("x", 2*maxLine), "\nend"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	w.flush()
	if diff := cmp.Diff([]string{"ab", "c", strings.Repeat("x", maxLine), "end"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMissing(t *testing.T) {
	err := checkTools(func(name string) (string, error) {
		if name == "mmdebstrap" {
			return "", fs.ErrNotExist
		}
		return name, nil
	})
	var e *holt.Error
	if !errors.As(err, &e) || e.Code != holt.Unsupported || !strings.Contains(e.Hint, "mmdebstrap") {
		t.Errorf("got %v", err)
	}
}

func FuzzLineWriter(f *testing.F) {
	f.Add([]byte("Get:1 x\r\nSetting up \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		watch := &watcher{log: func(string) {}, report: func(string, string, float64) {}}
		w := &lineWriter{line: watch.line}
		w.Write(data)
		w.flush()
	})
}
