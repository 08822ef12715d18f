package agent

import (
	"bytes"
	"io"
	"os"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/sys/unix"
)

// sftpClient returns the client of a server in this process.
func sftpClient(t *testing.T) *sftp.Client {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serveSFTP(in, out) }()
	c, err := sftp.NewClientPipe(fromServer, toServer, sftp.UseConcurrentWrites(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		toServer.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		out.Close()
		c.Close()
	})
	return c
}

// Zeros from an SFTP client become holes; it reads back what it wrote, also after overwriting.
func TestSFTPHoles(t *testing.T) {
	c, path := sftpClient(t), t.TempDir()+"/f"
	for _, want := range [][]byte{
		append(append([]byte("begin"), make([]byte, 16<<20)...), "middle"...),
		append([]byte("begin"), make([]byte, 16<<20)...), // ends with a hole
		make([]byte, 16<<20),
		bytes.Repeat([]byte{7}, 1<<20),
		nil,
	} {
		f, err := c.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadFrom(bytes.NewReader(want)); err != nil {
			t.Fatal(err)
		}
		if len(want) > 0 {
			if info, err := f.Stat(); err != nil || info.Size() != int64(len(want)) {
				t.Errorf("before it is closed: %v, %v", info.Size(), err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > 2<<20 {
			t.Errorf("%d bytes take %d, %v", st.Size, st.Blocks*512, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d are there, or others: %v", len(got), len(want), err)
		}
	}
	// In an existing file zeros are written; a client may seek back and overwrite a hole or data.
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 3<<16), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, flags := range []int{os.O_RDWR, os.O_RDWR | os.O_TRUNC} {
		f, err := c.OpenFile(path, flags)
		if err != nil {
			t.Fatal(err)
		}
		zero, data := make([]byte, 1<<16), bytes.Repeat([]byte{9}, 1<<16)
		for _, w := range []struct {
			p   []byte
			off int64
		}{{zero, 0}, {data, 2 << 16}, {zero, 2<<16 + 100}, {data, 0}, {zero, 1 << 16}} {
			if _, err := f.WriteAt(w.p, w.off); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		want := append(append(append(bytes.Clone(data), zero...), data[:100]...), zero...)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("flags %#x: %d bytes of %d are there, or others: %v", flags, len(got), len(want), err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A client that ends without closing its file leaves it with the acknowledged length.
func TestSFTPHoleAtTheEnd(t *testing.T) {
	path := t.TempDir() + "/f"
	t.Run("client", func(t *testing.T) {
		f, err := sftpClient(t).Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(make([]byte, 1<<16)); err != nil {
			t.Fatal(err)
		}
	})
	if info, err := os.Stat(path); err != nil || info.Size() != 1<<16 {
		t.Errorf("%v, %v", info, err)
	}
}

// For any packets the filter neither fails nor buffers more than a packet.
func FuzzSFTPHoles(f *testing.F) {
	f.Add(sftpWritePacket(1, "1", 0, make([]byte, 4096)), []byte{0, 0, 0, 9, sftpHandle, 0, 0, 0, 7, 0, 0, 0, 1, '1'})
	f.Add([]byte{0, 0, 0, 17, sftpOpen, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x12, 0, 0, 0, 0}, []byte{0, 0, 0, 10, sftpHandle, 0, 0, 0, 7, 0, 0, 0, 1, '1'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3}, []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	f.Fuzz(func(t *testing.T, requests, answers []byte) {
		var out bytes.Buffer
		r, w := new(sftpHoles).between(bytes.NewReader(requests), writeCloser{&out})
		go func() {
			w.Write(answers)
			w.Write(answers)
			w.Close()
		}()
		io.Copy(io.Discard, r)
	})
}

type writeCloser struct{ io.Writer }

func (writeCloser) Close() error { return nil }
