package image

import (
	"archive/tar"
	"bytes"
	"embed"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ground has the files of every image.
//
//go:embed all:ground
var ground embed.FS

const (
	setupPath = "holt-setup.sh"
	// extraBundle has only the host's additions to Debian's certificates, for
	// programs that add it to a bundle of their own.
	extraBundle = "/etc/ssl/holt-host-certificates.pem"
	guestBundle = "/etc/ssl/certs/ca-certificates.crt"
)

// Skeleton returns the files of /etc/skel in every image, by name.
func Skeleton() map[string][]byte {
	files := map[string][]byte{}
	for _, name := range []string{".profile", ".bashrc"} {
		files[name], _ = ground.ReadFile("ground/etc/skel/" + name) // embedded
	}
	return files
}

// overlay is the tar file that is unpacked over the tree after the packages are
// installed. It has no end marker, so that the kernel's modules can be appended. The
// same input gives the same bytes.
type overlay struct {
	buf bytes.Buffer
	tar *tar.Writer
}

func newOverlay() *overlay {
	o := &overlay{}
	o.tar = tar.NewWriter(&o.buf)
	return o
}

// put adds a regular file, owned by root. It adds no directories, so that existing
// ones keep their modes.
func (o *overlay) put(name string, mode int64, data []byte) error {
	return putTar(o.tar, name, mode, data)
}

func putTar(w *tar.Writer, name string, mode int64, data []byte) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Mode: mode,
		Size: int64(len(data)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("add %s to the image: %w", name, err)
	}
	_, err := w.Write(data)
	return err
}

// guestFiles adds the files that do not depend on the packages: ground, apt's
// sources, certificates, the environment, units, and the recipe's files last.
func (o *overlay) guestFiles(r Recipe, sources []source, extra []byte, env []string) error {
	err := fs.WalkDir(ground, "ground", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := ground.ReadFile(name)
		if err != nil {
			return err
		}
		return o.put(strings.TrimPrefix(name, "ground/"), 0o644, data)
	})
	if err != nil {
		return err
	}
	if err := o.put("etc/apt/sources.list.d/debian.sources", 0o644, formatSources(forGuest(sources))); err != nil {
		return err
	}
	if err := o.certificates(extra); err != nil {
		return err
	}
	if err := o.put("etc/environment", 0o644, []byte(strings.Join(env, "\n")+"\n")); err != nil {
		return err
	}
	for _, s := range r.Services.Define {
		if err := o.put("etc/systemd/system/"+s.Name+".service", 0o644, []byte(s.unit())); err != nil {
			return err
		}
	}
	for _, f := range r.Files {
		mode, err := f.mode()
		if err != nil {
			return err
		}
		if err := o.put(f.Path, mode, []byte(f.Content)); err != nil {
			return err
		}
	}
	return nil
}

// certificates adds the host's certificates where update-ca-certificates finds
// them.
func (o *overlay) certificates(extra []byte) error {
	if len(extra) == 0 {
		return nil
	}
	if err := o.put(extraBundle, 0o644, extra); err != nil {
		return err
	}
	for i, der := range parseCertificates(extra) {
		one := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if err := o.put(fmt.Sprintf("usr/local/share/ca-certificates/holt-host-%03d.crt", i), 0o644, one); err != nil {
			return err
		}
	}
	return nil
}

// guestEnv returns the lines of the guest's /etc/environment: the locale; the bundles
// of certificates, if the host has additional ones, for programs that do not use the
// system's; and the host's proxies, if a guest can use them. dropped are the variables of
// the others.
func guestEnv(extra []byte, getenv func(string) string) (env, dropped []string) {
	env = []string{"LANG=C.UTF-8"}
	if len(extra) > 0 {
		env = append(env, "NODE_EXTRA_CA_CERTS="+extraBundle,
			"REQUESTS_CA_BUNDLE="+guestBundle, "SSL_CERT_FILE="+guestBundle, "PIP_CERT="+guestBundle)
	}
	proxied := false
	for _, name := range []string{"http_proxy", "https_proxy"} {
		for _, name := range []string{name, strings.ToUpper(name)} {
			switch v := getenv(name); {
			case v == "":
			case usableProxy(v):
				env = append(env, name+"="+v)
				proxied = true
			default:
				dropped = append(dropped, name)
			}
		}
	}
	if v := getenv("no_proxy"); proxied && v != "" && !strings.ContainsAny(v, "\n\"'\\ ") {
		env = append(env, "no_proxy="+v, "NO_PROXY="+v)
	}
	return env, dropped
}

// usableProxy reports whether a guest can use the host's proxy: its address is not on
// the loopback, and it has no password, which would be stored on the disk of every
// computer.
func usableProxy(proxy string) bool {
	u, err := url.Parse(proxy)
	if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(proxy, "\n\"'\\ $`") {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() != "localhost" && (err != nil || !addr.IsLoopback())
}

// writeOverlay writes the complete tar file: the static part, the kernel's modules
// and, unless it is nil, another /etc/environment.
func writeOverlay(name string, static, environment []byte, k kernel, modulesDir string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(static); err != nil {
		return err
	}
	w := tar.NewWriter(f)
	lists, err := filepath.Glob(filepath.Join(modulesDir, "modules.*"))
	if err != nil {
		return err
	}
	var files []string
	for _, l := range lists {
		files = append(files, filepath.Base(l))
	}
	for _, m := range slices.Concat(files, k.Modules) {
		data, err := os.ReadFile(filepath.Join(modulesDir, m))
		if err != nil {
			return err
		}
		if err := putTar(w, "usr/lib/modules/"+k.Release+"/"+m, 0o644, data); err != nil {
			return err
		}
	}
	if environment != nil {
		if err := putTar(w, "etc/environment", 0o644, environment); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// static returns the overlay's bytes without the end marker of a tar file.
func (o *overlay) static() ([]byte, error) {
	if err := o.tar.Flush(); err != nil {
		return nil, err
	}
	return o.buf.Bytes(), nil
}
