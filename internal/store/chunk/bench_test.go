package chunk

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// files returns contents with the size distribution of a source tree: mostly small.
func files(n int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, n)
	for i := range out {
		out[i] = text(uint64(i), 200+rng.IntN(8000)*(1+i%40/39*10))
	}
	return out
}

func benchArchive(b *testing.B) *Archive {
	dir := b.TempDir()
	s, err := OpenDir(filepath.Join(dir, "store"))
	ok(b, err)
	return openAt(b, dir, Options{Store: s})
}

func BenchmarkPackLarge(b *testing.B) {
	for name, content := range map[string][]byte{"text": text(1, 32<<20), "noise": noise(1, 32<<20)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				b.StopTimer()
				a := benchArchive(b)
				b.StartTimer()
				_, err := put(b, a, "w", "p", content)
				ok(b, err)
			}
		})
	}
}

func BenchmarkPackFiles(b *testing.B) {
	tree := files(5000)
	n := 0
	for b.Loop() {
		b.StopTimer()
		a := benchArchive(b)
		b.StartTimer()
		_, err := put(b, a, "w", "p", tree...)
		ok(b, err)
		n += len(tree)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "files/s")
}

// BenchmarkPackAgain packs content that the archive already has.
func BenchmarkPackAgain(b *testing.B) {
	tree := files(5000)
	a := benchArchive(b)
	_, err := put(b, a, "w", "p", tree...)
	ok(b, err)
	n := 0
	for b.Loop() {
		w, err := put(b, a, "w2", "p", tree...)
		ok(b, err)
		if w.New != 0 {
			b.Fatal("not found again")
		}
		n += len(tree)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "files/s")
}

func BenchmarkReadSequential(b *testing.B) {
	content := text(1, 64<<20)
	a := benchArchive(b)
	a.hot.most = 1 << 20
	_, err := put(b, a, "w", "p", content)
	ok(b, err)
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		for off := 0; off < len(content); off += len(p) {
			ok(b, a.ReadAt(lazy, "w", "p", p, int64(off)))
		}
	}
}

func BenchmarkReadRandom4K(b *testing.B) {
	content := text(1, 64<<20)
	for name, hot := range map[string]int{"hot": 128 << 20, "cold": 1} {
		b.Run(name, func(b *testing.B) {
			a := benchArchive(b)
			a.hot.most = hot
			_, err := put(b, a, "w", "p", content)
			ok(b, err)
			rng := rand.New(rand.NewPCG(1, 1))
			p := make([]byte, 4096)
			for b.Loop() {
				ok(b, a.ReadAt(lazy, "w", "p", p, rng.Int64N(int64(len(content)-len(p)))))
			}
		})
	}
}

func BenchmarkFork(b *testing.B) {
	a := benchArchive(b)
	_, err := put(b, a, "w", "p", files(5000)...)
	ok(b, err)
	for b.Loop() {
		ok(b, a.Fork(lazy, "w", "f"))
	}
}

func BenchmarkCut(b *testing.B) {
	content, c := noise(1, 32<<20), newCutter()
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		for rest := content; len(rest) > 0; rest = rest[c.cut(rest):] {
		}
	}
}

// BenchmarkTree packs the sources of Go, then a copy in which every twentieth
// file has some bytes inserted; ratio is the stored size of both.
func BenchmarkTree(b *testing.B) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	ok(b, err)
	var tree [][]byte
	var size int64
	ok(b, filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		c, err := os.ReadFile(path)
		tree, size = append(tree, c), size+int64(len(c))
		return err
	}))
	edited := slices.Clone(tree)
	for i := 0; i < len(edited); i += 20 {
		edited[i] = slices.Concat(edited[i][:len(edited[i])/2], []byte("// a line more"), edited[i][len(edited[i])/2:])
	}
	b.SetBytes(size)
	n := 0
	var once, twice Written
	for b.Loop() {
		b.StopTimer()
		a := benchArchive(b)
		b.StartTimer()
		once, err = put(b, a, "w", "p", tree...)
		ok(b, err)
		n += len(tree)
		b.StopTimer()
		twice, err = put(b, a, "edited", "p", edited...)
		ok(b, err)
		b.StartTimer()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "files/s")
	b.ReportMetric(float64(once.Bytes)/float64(once.Stored), "ratio")
	b.ReportMetric(float64(once.Bytes+twice.Bytes)/float64(once.Stored+twice.Stored), "ratio-of-both")
}
