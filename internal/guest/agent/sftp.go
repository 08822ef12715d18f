package agent

import (
	"errors"
	"io"

	"github.com/pkg/sftp"
)

// serveSFTP serves one SFTP client (version 3, with OpenSSH's posix-rename,
// hardlink and statvfs) on two streams as the user of this process, so the
// kernel checks permissions and resolves paths. Relative paths are relative to
// the process's working directory (the library's own option would make the
// targets of links absolute).
func serveSFTP(in io.Reader, out io.WriteCloser) error {
	in, out = new(sftpHoles).between(in, out)
	s, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{in, out})
	if err != nil {
		return err
	}
	if err = s.Serve(); errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
