package holt

import (
	"bytes"
	"errors"
	"io"
	"syscall"
)

const (
	holeBlock = 4 << 10  // holes begin and end at multiples of it
	leastHole = 64 << 10 // shorter runs of zeros are written: they are not worth an extent
)

var zeroBlock [holeBlock]byte

// EachData calls fn with the parts of p that are not holes; p is the content of a file from offset off on. A hole is a long
// run of zero blocks, or one at the beginning or end of p, which may be part of a long one. A caller that writes only these
// parts must set the size of the file at the end.
func EachData(p []byte, off int64, fn func(p []byte, off int64) error) error {
	from := 0 // start of the part that was not passed to fn yet
	for at := 0; at < len(p); {
		zeros := zerosAt(p, at, off)
		if end := at + zeros; zeros >= leastHole || zeros > 0 && (at == 0 || end == len(p)) {
			if from < at {
				if err := fn(p[from:at], off+int64(from)); err != nil {
					return err
				}
			}
			from, at = end, end
			continue
		}
		at += max(zeros, holeBlock-int((off+int64(at))%holeBlock))
	}
	if from < len(p) {
		return fn(p[from:], off+int64(from))
	}
	return nil
}

// zerosAt returns how many bytes of p from at on are zero, up to the end of a block or of p.
func zerosAt(p []byte, at int, off int64) int {
	end := at
	for end < len(p) {
		next := min(len(p), end+holeBlock-int((off+int64(end))%holeBlock))
		if !bytes.Equal(p[end:next], zeroBlock[:next-end]) {
			break
		}
		end = next
	}
	return end - at
}

// ReadUpTo fills p, or returns r's own error if r ends before. [io.ReadFull] would
// return io.ErrUnexpectedEOF for a normal end.
func ReadUpTo(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var more int
		more, err = r.Read(p[n:])
		n += more
	}
	return n, err
}

// NextData returns the next range of data of an open file from offset off on; size and size if there is none.
func NextData(fd int, off, size int64) (from, to int64, err error) {
	const seekData, seekHole = 3, 4
	from, err = syscall.Seek(fd, off, seekData)
	if errors.Is(err, syscall.ENXIO) || err == nil && from >= size {
		return size, size, nil
	}
	if errors.Is(err, syscall.EINVAL) { // a file system without holes
		return off, size, nil
	}
	if err != nil {
		return 0, 0, err
	}
	to, err = syscall.Seek(fd, from, seekHole)
	return from, min(to, size), err
}
