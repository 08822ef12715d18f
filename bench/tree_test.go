package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"io"
	"path"
	"testing"
)

func TestTar(t *testing.T) {
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := writeTar(b, 2000); err != nil {
			t.Fatal(err)
		}
	}
	if sha256.Sum256(first.Bytes()) != sha256.Sum256(second.Bytes()) {
		t.Error("two archives of the same size differ")
	}
	kinds := map[byte]int{}
	seen := map[string]bool{"": true}
	total := int64(0)
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(h.Name)
		if seen[name] {
			t.Errorf("%s comes twice", name)
		}
		if parent := path.Dir(name); parent != "." && !seen[parent] {
			t.Errorf("%s comes before its directory", name)
		}
		seen[name] = true
		kinds[h.Typeflag]++
		total += h.Size
	}
	if kinds[tar.TypeReg]+kinds[tar.TypeSymlink] != 2000 || kinds[tar.TypeSymlink] == 0 || kinds[tar.TypeDir] < 50 {
		t.Errorf("kinds of entries: %v", kinds)
	}
	if mean := total / 2000; mean < 2<<10 || mean > 16<<10 {
		t.Errorf("the mean size is %d bytes", mean)
	}
}
