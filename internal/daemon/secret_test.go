package daemon_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holt"
	"holt/internal/network/netstack"
)

const (
	apiSecret  = "sk-hunter2-the-first"
	nextSecret = "sk-hunter2-the-next"
)

// hears is a server of TLS on the host's loopback that answers whether a request has a known secret, and not which; who
// trusts the file's CA trusts it.
func hears(t *testing.T) (port string) {
	certificate, key, err := netstack.NewCA("the host's")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{
		SerialNumber: big.NewInt(7), DNSNames: []string{netstack.HostName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, of, ca.Leaf, &k.PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	setenv(t, "SSL_CERT_FILE", file) // of the networks that the daemon starts
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := map[string]string{"Bearer " + apiSecret: "the first", "Bearer " + nextSecret: "the next", "": "none"}
		fmt.Fprintln(w, "has", said[r.Header.Get("Authorization")])
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: k}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the first request does not trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, _ = strings.Cut(s.Listener.Addr().String(), ":")
	return port
}

// TestHostSecrets: a computer's requests to a host carry a secret that is nowhere in it, nor in what is kept of it but the
// control database; it changes at once, goes on when its network and its daemon are killed and it was paused, and
// is not its fork's. The computer asks for itself by the command holt.
func TestHostSecrets(t *testing.T) {
	port := hears(t)
	v := &vm{t: t, dir: vmHome(t)}
	v.again("")
	ctx := t.Context()
	policy := &holt.NetworkPolicy{Egress: holt.EgressOpen, Allow: []string{"host.holt.internal:" + port}}
	if _, err := v.Computers.Create(ctx, holt.ComputerSpec{Name: "curie", MemoryMB: 256, Network: policy}, ""); err != nil {
		t.Fatal(err)
	}
	ask := func(computer, want string) {
		t.Helper()
		said := v.says(computer, `python3 -c "
import urllib.request
try: print(urllib.request.urlopen('https://host.holt.internal:`+port+`/').read().decode())
except Exception as e: print(e)"`)
		if !strings.Contains(said, want) {
			t.Errorf("%s: a request gets %q, not %q", computer, said, want)
		}
	}
	set := func(value string) {
		t.Helper()
		if _, err := v.Secrets.Set(ctx, "curie", "api", holt.HostSecret{Host: "host.holt.internal:" + port, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	ask("curie", "CERTIFICATE_VERIFY_FAILED")
	set(apiSecret)
	ask("curie", "has the first")
	set(nextSecret)
	ask("curie", "has the next")
	if said := v.says("curie", "env | grep -c hunter; cat /run/holt/* /proc/[0-9]*/environ 2>/dev/null | grep -ac hunter; true"); strings.TrimSpace(strings.ReplaceAll(said, "\n", " ")) != "0 0" {
		t.Errorf("it is in the computer: %s", said)
	}
	v.kill()
	v.again("")
	ask("curie", "has the next")
	if _, err := v.Computers.Pause(ctx, "curie", ""); err != nil {
		t.Fatal(err)
	}
	set(apiSecret)
	ask("curie", "has the first")
	v.commands()
	if _, err := v.Computers.Fork(ctx, "curie", holt.ComputerForkSpec{Name: "same", WithSecrets: true}, ""); err != nil {
		t.Fatal(err)
	}
	ask("same", "has the first")
	ask("bohr", "CERTIFICATE_VERIFY_FAILED") // the host's own, which nobody stands before
	if err := v.Secrets.Delete(ctx, "curie", "api", ""); err != nil {
		t.Fatal(err)
	}
	ask("curie", "CERTIFICATE_VERIFY_FAILED")
	v.kept()
	for _, name := range []string{"curie", "bohr", "same"} {
		v.remove(name)
	}
	endAll(t, v.process)
}

// commands: the command holt in a computer does what it says; a fork finds out that it is one.
func (v *vm) commands() {
	t, ctx := v.t, v.t.Context()
	t.Helper()
	for _, one := range [][2]string{
		{"holt self", `"name": "curie"`}, {"holt checkpoint mine", `"name": "mine"`}, {"holt snapshot --name dawn", `"name": "dawn"`},
		{"holt checkpoint mine >/dev/null 2>&1; echo $?", "4"}, {"su agent -c 'holt self --json=false'", "curie"},
		{"holt fork --name bohr --json=false", "bohr runs, forked from curie"},
	} {
		if said := v.says("curie", one[0]); !strings.Contains(said, one[1]) {
			t.Errorf("%s: %s", one[0], said)
		}
	}
	if c, err := v.Computers.Get(ctx, "bohr"); err != nil || c.Parent == nil || c.Parent.Name != "curie" {
		t.Errorf("%+v %v", c, err)
	}
}

// kept looks for the secret in the files of the data directory.
func (v *vm) kept() {
	t := v.t
	t.Helper()
	err := filepath.WalkDir(v.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(d.Name(), "holt.db") {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		const over = 64 // bytes that are read twice, so that no border splits the secret
		b := make([]byte, 1<<20)
		for at := int64(0); ; {
			data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA) // disks have large holes
			if err != nil {
				return nil
			}
			n, err := f.ReadAt(b, data)
			if bytes.Contains(b[:n], []byte("sk-hunter2")) {
				if st, err := f.Stat(); err != nil || st.Mode().Perm() != 0o600 || d.Name() != "network-secrets.json" {
					t.Errorf("the secret is in %s", path)
				}
				return nil
			}
			if err != nil {
				return nil
			}
			at = data + int64(n) - over
		}
	})
	if err != nil {
		t.Error(err)
	}
}
