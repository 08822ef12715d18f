package image

import (
	"fmt"
	"io"
)

// cpioWriter writes an archive in the "new ASCII" format of an initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst).
// Owners are root and times are zero, so the same input gives the same bytes.
type cpioWriter struct {
	w    io.Writer
	inos uint32
	n    int64
	err  error
}

const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioChar = 0o020000

	cpioTrailer = "TRAILER!!!"
)

// add writes one entry. mode includes the file type; major and minor matter
// for device nodes only.
func (c *cpioWriter) add(name string, mode uint32, data []byte, major, minor uint32) {
	c.inos++
	links := 1
	if mode&0o170000 == cpioDir {
		links = 2
	}
	c.printf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.inos, mode, 0, 0, links, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	c.pad()
	c.write(data)
	c.pad()
}

// close ends the archive and returns the first error of any write.
func (c *cpioWriter) close() error {
	c.inos = ^uint32(0) // the trailer's number is 0
	c.add(cpioTrailer, 0, nil, 0, 0)
	return c.err
}

func (c *cpioWriter) printf(format string, args ...any) {
	c.write(fmt.Appendf(nil, format, args...))
}

// pad aligns headers and data to four bytes.
func (c *cpioWriter) pad() {
	c.write(make([]byte, (4-c.n%4)%4))
}

func (c *cpioWriter) write(p []byte) {
	if c.err != nil || len(p) == 0 {
		return
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
}
