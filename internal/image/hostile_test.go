package image

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// tarOf makes a tar file of names and contents.
func tarOf(t testing.TB, files ...[2]string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(f[1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzKernelTar: a kernel package cannot write outside the directory, and only expected
// files are written.
func FuzzKernelTar(f *testing.F) {
	f.Add(tarOf(f, [2]string{"./boot/vmlinuz-6.1", "kernel"}, [2]string{"./lib/modules/6.1/modules.order", "x"}))
	f.Add(tarOf(f, [2]string{"lib/modules/6.1/../../../../escape.ko", "x"}, [2]string{"boot/vmlinuz-6.1", "k"}))
	f.Add(tarOf(f, [2]string{"usr/lib/modules/6.1/modules.x/../../../../../../escape", "x"}))
	f.Add([]byte("no tar"))
	f.Fuzz(func(t *testing.T, b []byte) {
		above := t.TempDir()
		dir := filepath.Join(above, "a", "b", "c")
		if _, err := readKernelTar(bytes.NewReader(b), dir, "6.1"); err == nil && len(b) == 0 {
			t.Error("a package without a kernel is accepted")
		}
		err := filepath.WalkDir(above, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasPrefix(name, dir+"/"+kernelModules+"/") && name != filepath.Join(dir, kernelBoot) {
				t.Errorf("wrote %s", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// FuzzCertificates: the result is certificates, and parsing it again gives the same.
func FuzzCertificates(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"))
	f.Add(bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\n"), 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(parseCertificates(b)); n > maxCertificates {
			t.Errorf("%d certificates", n)
		}
	})
}
