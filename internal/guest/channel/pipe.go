package channel

import (
	"errors"
	"os"
)

// Pipe is a [Line] on two named pipes, as a sandbox has it. Both are open for
// reading and writing, so there is never an end of file or a hang-up: a session
// lasts until the next one begins, and a host that leaves can end its own by
// sending as many zeros as a preamble has. The far end must always read, host
// or no host. After a restore the same descriptors are other pipes.
type Pipe struct{ in, out *Device }

// NewPipe returns the line that reads in and writes out, and owns both. They
// must be in Go's poller: opened by package os, or from non-blocking descriptors.
func NewPipe(in, out *os.File) (*Pipe, error) {
	from, err := deviceOf(in)
	to, err2 := deviceOf(out)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	return &Pipe{in: from, out: to}, nil
}

func (p *Pipe) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *Pipe) Write(b []byte) (int, error) { return p.out.Write(b) }

func (p *Pipe) wakeRead()  { p.in.wakeRead() }
func (p *Pipe) wakeWrite() { p.out.wakeWrite() }

// Close also ends running reads and writes.
func (p *Pipe) Close() error { return errors.Join(p.in.Close(), p.out.Close()) }
