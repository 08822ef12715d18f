package agent

import (
	"errors"
	"io"

	"github.com/pkg/sftp"
)

// serveSFTP answers one SFTP client (version 3, with OpenSSH's posix-rename, hardlink and statvfs) on two
// streams, as the user that this process is: what it may do, and where paths lead, is the kernel's to say. Relative paths
// are those of the directory that it was started in (with the library's own working directory the targets of links would become absolute).
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
