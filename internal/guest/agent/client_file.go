package agent

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"holt"
)

// ReadFile copies up to n bytes (negative: all) of a file from offset to w, and
// returns their number. An error of w is returned unchanged.
func (c *Client) ReadFile(ctx context.Context, path string, offset, n int64, w io.Writer) (int64, error) {
	s, err := c.open(ctx, opRead, fileArgs{Path: holt.OSString(path), Offset: offset, Length: n}, nil)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	in := io.Reader(&chunkReader{r: s})
	if n >= 0 {
		in = &atMost{in, n}
	}
	got, err := io.CopyBuffer(ownWriter{w}, in, make([]byte, maxChunk))
	if own, ok := own(err); ok {
		return got, own
	}
	if err == nil {
		err = readAnswer(s, nil)
	}
	return got, describe(ctx, opRead, err)
}

// atMost fails when a guest sends more than requested.
type atMost struct {
	r    io.Reader
	left int64
}

func (m *atMost) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if m.left -= int64(n); m.left < 0 {
		return 0, holt.Errorf(holt.Corrupt, "guest sent more of a file than requested")
	}
	return n, err
}

type ownWriter struct{ io.Writer }

func (w ownWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil {
		err = stopped{err}
	}
	return n, err
}

// WriteFile replaces the content of a file with r once all of r has arrived. An
// error of r is returned unchanged, and the file is not changed. An existing
// file keeps its inode, owner, mode and attributes, unless spec sets others.
func (c *Client) WriteFile(ctx context.Context, path string, spec holt.WriteSpec, r io.Reader) error {
	args := fileArgs{Path: holt.OSString(path), Mode: spec.Mode, NewMode: spec.ModeOfNew(), User: spec.User, Beneath: beneath(ctx)}
	s, err := c.open(ctx, opWrite, args, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	answered := make(chan error, 1)
	go func() {
		answered <- readAnswer(s, nil)
		s.SetWriteDeadline(time.Unix(1, 0)) // the guest has stopped reading
	}()
	out := newChunkWriter(s, maxChunk)
	_, err = out.ReadFrom(ownReader{r})
	if own, ok := own(err); ok {
		return own // without an end of chunks the guest discards the file
	}
	if err == nil {
		out.end() // if it fails, the answer has the reason
	}
	return describe(ctx, opWrite, <-answered)
}

type ownReader struct{ io.Reader }

func (r ownReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = stopped{err}
	}
	return n, err
}

// beneath returns the directory that ctx's calls are confined to; see [holt.Beneath].
func beneath(ctx context.Context) holt.OSString { return holt.OSString(holt.BeneathOf(ctx)) }

// Stat describes a file. It does not follow a symbolic link at the end of path.
func (c *Client) Stat(ctx context.Context, path string) (holt.FileInfo, error) {
	var info holt.FileInfo
	if err := c.call(ctx, opStat, fileArgs{Path: holt.OSString(path), Beneath: beneath(ctx)}, &info); err != nil {
		return holt.FileInfo{}, err
	}
	return vetFile(info, path)
}

// mostListBytes limits the encoded size of one listing.
const mostListBytes = 256 << 20

// List calls entry for at most most entries of a directory, in directory order,
// from an offset (0: the first). after is the offset behind an entry. An entry
// that exists throughout is returned once, if the file system's offsets are
// stable, as those of Linux disk file systems are. Each name is a single name,
// never a path. An error of entry ends the listing and is returned.
func (c *Client) List(ctx context.Context, path string, offset int64, most int, entry func(info holt.FileInfo, after int64) error) error {
	s, err := c.open(ctx, opList, fileArgs{Path: holt.OSString(path), Offset: offset, Length: int64(most)}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	entries := 0
	err = readList(s, mostListBytes, func(e listed) error {
		if entries++; entries > most {
			return holt.Errorf(holt.Corrupt, "guest listed more of %s than requested", path)
		}
		info, err := vetEntry(e.FileInfo, path)
		if err != nil {
			return err
		}
		return entry(info, e.After)
	})
	if own, ok := own(err); ok {
		return own
	}
	return describe(ctx, opList, err)
}

// Mkdir creates a directory, owned by user ("": as its parent). With parents it
// also creates missing parents and accepts an existing directory.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, user string, parents bool) error {
	return c.call(ctx, opMkdir, fileArgs{Path: holt.OSString(path), Mode: mode, User: user, Recursive: parents, Beneath: beneath(ctx)}, nil)
}

// Symlink creates a symbolic link, owned by user ("": as its directory). It
// atomically replaces a file or link at path.
func (c *Client) Symlink(ctx context.Context, path, target, user string) error {
	return c.call(ctx, opSymlink, fileArgs{Path: holt.OSString(path), To: holt.OSString(target), User: user, Beneath: beneath(ctx)}, nil)
}

// Remove removes a file or an empty directory. With recursive it removes a
// tree, and a missing path is no error.
func (c *Client) Remove(ctx context.Context, path string, recursive bool) error {
	return c.call(ctx, opRemove, fileArgs{Path: holt.OSString(path), Recursive: recursive, Beneath: beneath(ctx)}, nil)
}

// Rename renames a file, replacing an existing one.
func (c *Client) Rename(ctx context.Context, from, to string) error {
	return c.call(ctx, opRename, fileArgs{Path: holt.OSString(from), To: holt.OSString(to), Beneath: beneath(ctx)}, nil)
}

// Watch calls event for each change under path until ctx ends, and then returns
// Timeout. ready, if not nil, is called when the watch is complete: no later
// change is missed. Recursive watches include new directories, up to 8,192 in
// all. An error of event ends the watch and is returned.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, ready func(), event func(FileEvent) error) error {
	s, err := c.open(ctx, opWatch, fileArgs{Path: holt.OSString(path), Recursive: recursive}, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if ready != nil {
		ready()
	}
	err = readItems(s, event)
	if own, ok := own(err); ok {
		return own
	}
	if err == nil { // the watched path is gone
		return holt.Errorf(holt.NotFound, "watch %s: the path has been removed", path)
	}
	return describe(ctx, opWatch, err)
}

// Measure times the transfer of bytes each way through the channel. A direction
// with no bytes is not measured.
func (c *Client) Measure(ctx context.Context, into, out int64) (Throughput, error) {
	var t Throughput
	s, err := c.open(ctx, opMeasure, measureArgs{Into: into, Out: out}, nil)
	if err != nil {
		return t, err
	}
	defer s.Close()
	start := time.Now()
	w := newChunkWriter(s, maxChunk)
	if _, err = w.ReadFrom(io.LimitReader(measured{}, into)); err == nil {
		err = w.end()
	}
	if err == nil {
		err = readAnswer(s, nil)
	}
	t.IntoGuest = rate(into, time.Since(start))
	if err == nil {
		start = time.Now()
		_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{&chunkReader{r: s}}, make([]byte, maxChunk))
		t.OutOfGuest = rate(out, time.Since(start))
	}
	return t, describe(ctx, opMeasure, err)
}

func rate(n int64, d time.Duration) float64 { return float64(n) / 1e6 / max(d.Seconds(), 1e-9) }

// measured generates bytes for a measurement; zeros would be compressed into holes.
type measured struct{}

func (measured) Read(p []byte) (int, error) {
	p[0] = 'x'
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// DialPort connects to an address in the guest: network "tcp" or "unix". The
// host localhost means any address on which a program listens at that port. The
// connection has CloseWrite and outlives ctx. NotFound: nothing listens there.
func (c *Client) DialPort(ctx context.Context, network, address string) (net.Conn, error) {
	return c.DialPortAs(ctx, network, address, "")
}

// DialPortAs is DialPort to a unix socket with the rights of a Linux user; "":
// root. Forbidden: the user has no permission.
func (c *Client) DialPortAs(ctx context.Context, network, address, user string) (net.Conn, error) {
	return c.connect(ctx, opDial, dialArgs{Network: network, Address: address, User: user})
}

// connect opens a stream for a connection that outlives ctx.
func (c *Client) connect(ctx context.Context, op string, args any) (net.Conn, error) {
	s, err := c.open(ctx, op, args, nil)
	if err != nil {
		return nil, err
	}
	if !s.stop() { // giveUp has been or will be called
		s.Close()
		return nil, describe(ctx, op, ctx.Err())
	}
	return newPortConn(s, smallChunk), nil
}

// lingerFor is how long a connection is kept after its end was sent, so that
// the guest can receive the rest: a closed stream is cut off soon.
const lingerFor = 30 * time.Second

// portConn carries a connection over a stream in chunks, so that the end of one
// direction (an empty chunk) differs from a broken connection.
type portConn struct {
	net.Conn // the stream

	reading sync.Mutex // held by Read
	in      *chunkReader
	closed  bool

	mu    sync.Mutex
	out   *chunkWriter
	ended bool

	closing sync.Once
}

// newPortConn returns a connection with chunks of at most chunk bytes.
func newPortConn(stream net.Conn, chunk int) *portConn {
	return &portConn{Conn: stream, in: &chunkReader{r: stream}, out: newChunkWriter(stream, chunk)}
}

func (p *portConn) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	return p.in.Read(b)
}

func (p *portConn) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0, net.ErrClosed
	}
	return p.out.Write(b)
}

// CloseWrite ends the sent direction; reading continues.
func (p *portConn) CloseWrite() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	return p.out.end()
}

// Close closes the connection. After CloseWrite the far end still receives
// everything written; otherwise it sees a broken connection.
func (p *portConn) Close() (err error) {
	p.closing.Do(func() {
		if !p.mu.TryLock() { // held by a blocked write
			p.SetWriteDeadline(time.Unix(1, 0))
			p.mu.Lock()
		}
		ended := p.ended
		p.ended = true
		p.mu.Unlock()
		if !ended {
			err = p.Conn.Close()
			return
		}
		p.SetReadDeadline(time.Unix(1, 0))
		go func() {
			p.reading.Lock() // wait for a running Read; later ones fail
			p.closed = true
			p.reading.Unlock()
			p.SetReadDeadline(time.Now().Add(lingerFor))
			io.Copy(io.Discard, p.Conn)
			p.Conn.Close()
		}()
	})
	return err
}
