package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// onEach runs a benchmark on a workspace mounted on the host, on the bare
// server, and on the underlying directory.
func onEach(b *testing.B, bench func(b *testing.B, dir string)) {
	b.Run("workspace", func(b *testing.B) {
		needRoot(b)
		ws, err := workspace.Create(filepath.Join(b.TempDir(), "ws"), workspace.Options{})
		if err != nil {
			b.Fatal(err)
		}
		defer ws.Close()
		dir := b.TempDir()
		m, err := Host(b.Context(), ws, dir, HostOptions{})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Unmount()
		pollOnce(b, dir)
		bench(b, dir)
	})
	b.Run("bare", func(b *testing.B) {
		needRoot(b)
		dir := b.TempDir()
		m, err := Bare(b.Context(), dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer m.Unmount()
		pollOnce(b, dir)
		bench(b, dir)
	})
	b.Run("directory", func(b *testing.B) { bench(b, b.TempDir()) })
}

// perDir is the number of files per directory in the benchmarks.
const perDir = 1000

func benchName(dir string, i int) string {
	return fmt.Sprintf("%s/d%d/f%d", dir, i/perDir, i%perDir)
}

func makeFile(b *testing.B, dir string, i int, content []byte) {
	if i%perDir == 0 {
		if err := unix.Mkdir(filepath.Join(dir, fmt.Sprintf("d%d", i/perDir)), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	fd, err := unix.Open(benchName(dir, i), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := unix.Write(fd, content); err != nil {
		b.Fatal(err)
	}
	unix.Close(fd)
}

// BenchmarkCreate creates files, writes 4 KiB to each and closes them.
func BenchmarkCreate(b *testing.B) {
	onEach(b, func(b *testing.B, dir string) {
		content := make([]byte, 4096)
		i := 0
		for b.Loop() {
			makeFile(b, dir, i, content)
			i++
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
	})
}

// BenchmarkStatCold stats 10,000 files with empty kernel caches.
func BenchmarkStatCold(b *testing.B) { benchStat(b, true) }

// BenchmarkStatWarm stats 10,000 files in the kernel's caches.
func BenchmarkStatWarm(b *testing.B) { benchStat(b, false) }

func benchStat(b *testing.B, cold bool) {
	const files = 10000
	onEach(b, func(b *testing.B, dir string) {
		for i := range files {
			makeFile(b, dir, i, nil)
		}
		var st unix.Stat_t
		for b.Loop() {
			if cold {
				b.StopTimer()
				dropCaches(b)
				b.StartTimer()
			}
			for i := range files {
				if err := unix.Lstat(benchName(dir, i), &st); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N)*files/b.Elapsed().Seconds(), "stats/s")
	})
}

// dropCaches empties the kernel's caches of pages, names and inodes.
func dropCaches(b *testing.B) {
	unix.Sync()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		b.Fatal(err)
	}
}

const (
	seqSize  = 256 << 20
	seqBlock = 1 << 20
)

// BenchmarkWrite writes 256 MiB sequentially.
func BenchmarkWrite(b *testing.B) {
	onEach(b, func(b *testing.B, dir string) {
		b.SetBytes(seqSize)
		for b.Loop() {
			writeLarge(b, filepath.Join(dir, "large"))
		}
	})
}

func writeLarge(b *testing.B, path string) {
	buf := make([]byte, seqBlock)
	for i := range buf {
		buf[i] = byte(i * 7)
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(fd)
	for range seqSize / seqBlock {
		if _, err := unix.Write(fd, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReadCold reads 256 MiB sequentially with empty caches.
func BenchmarkReadCold(b *testing.B) {
	onEach(b, func(b *testing.B, dir string) {
		path := filepath.Join(dir, "large")
		writeLarge(b, path)
		b.SetBytes(seqSize)
		buf := make([]byte, seqBlock)
		for b.Loop() {
			b.StopTimer()
			dropCaches(b)
			b.StartTimer()
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				b.Fatal(err)
			}
			for total := 0; total < seqSize; {
				n, err := unix.Read(fd, buf)
				if err != nil || n == 0 {
					b.Fatal(n, err)
				}
				total += n
			}
			unix.Close(fd)
		}
	})
}
