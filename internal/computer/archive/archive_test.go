package archive

import (
	"path/filepath"
	"testing"
)

func FuzzParseAbout(f *testing.F) {
	f.Add([]byte(`{"snapshot":{"id":"snap_x"},"files":[{"name":"memory","size":300000000,"strip":268435456,"data":[4096,0]}]}`))
	f.Add([]byte(`{"files":[{"name":"../x","size":1,"data":[1]},{"name":"y","size":-1},{"name":"z","size":9e18,"data":[-1]}]}`))
	f.Add([]byte(`{"files":[{"name":"memory","size":100000,"strip":65536,"data":[65536,34465]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAbout(b)
		if err != nil {
			return
		}
		for _, f := range a.Files {
			if filepath.Base(f.Name) != f.Name || f.Size < 0 || len(f.Data) != parts(f.Size, f.Strip) {
				t.Errorf("%+v", f)
			}
			for i, n := range f.Data {
				if first, end := f.bounds(i); n < 0 || n > end-first {
					t.Errorf("%d bytes in part %d of %+v", n, i, f)
				}
			}
		}
	})
}
