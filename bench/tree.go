package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"time"
)

// sourceDate is the time of every generated file, so that the same number of
// files gives the same bytes on every machine.
const sourceDate = 1_750_000_000 // seconds since 1970: June 2025

// words make text that compresses as source does.
var words = strings.Fields("func return if err nil package import string int range for var type struct const " +
	"context byte open close read write file name path offset length buffer request reply state lock index value key node")

// writeTar writes a tree like a source repository's as a tar archive: n files
// in directories of 4 to 40, mostly small (median about 2 KiB, a few of 100 KiB
// and more), some executable, some symbolic links. It is the same for the same n.
func writeTar(w io.Writer, n int) error {
	random := rand.New(rand.NewSource(int64(n)))
	buffered := bufio.NewWriterSize(w, 1<<20)
	archive := tar.NewWriter(buffered)
	dir := "tree"
	if err := addDir(archive, dir); err != nil {
		return err
	}
	tops := []string{dir}
	for left := 0; n > 0; n-- {
		if left == 0 {
			parent := tops[random.Intn(len(tops))]
			dir = fmt.Sprintf("%s/%s%d", parent, words[random.Intn(len(words))], n)
			if err := addDir(archive, dir); err != nil {
				return err
			}
			if strings.Count(dir, "/") < 6 {
				tops = append(tops, dir)
			}
			left = 4 + random.Intn(37)
		}
		left--
		if err := addFile(archive, random, dir, n); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), buffered.Flush())
}

func header(name string, kind byte, mode int64) *tar.Header {
	return &tar.Header{Name: name, Typeflag: kind, Mode: mode, ModTime: time.Unix(sourceDate, 0), Format: tar.FormatUSTAR}
}

func addDir(archive *tar.Writer, name string) error {
	return archive.WriteHeader(header(name+"/", tar.TypeDir, 0o755))
}

func addFile(archive *tar.Writer, random *rand.Rand, dir string, n int) error {
	name := fmt.Sprintf("%s/%s_%d.go", dir, words[random.Intn(len(words))], n)
	if random.Intn(50) == 0 {
		h := header(name, tar.TypeSymlink, 0o777)
		h.Linkname = "../" + words[random.Intn(len(words))]
		return archive.WriteHeader(h)
	}
	h := header(name, tar.TypeReg, 0o644)
	if random.Intn(20) == 0 {
		h.Mode = 0o755
	}
	content := text(random, fileSize(random))
	h.Size = int64(len(content))
	if err := archive.WriteHeader(h); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

// fileSize draws a size, bytes.
func fileSize(random *rand.Rand) int {
	switch d := random.Intn(1000); {
	case d < 20:
		return 0
	case d < 900:
		return 1 + int(random.ExpFloat64()*3000)
	case d < 995:
		return 8<<10 + random.Intn(40<<10)
	}
	return 100<<10 + random.Intn(400<<10)
}

func text(random *rand.Rand, size int) []byte {
	out := make([]byte, 0, size+16)
	for len(out) < size {
		out = append(out, words[random.Intn(len(words))]...)
		if random.Intn(8) == 0 {
			out = append(out, '\n')
		} else {
			out = append(out, ' ')
		}
	}
	return out[:size]
}

// makeTar writes the archive to a file.
func makeTar(name string, n int) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(f, n), f.Close())
}
