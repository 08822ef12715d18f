package agent

import (
	"errors"
	"io"
	"os"

	"github.com/pkg/sftp"
)

// serveSFTP answers one SFTP client (version 3, with OpenSSH's posix-rename, hardlink and statvfs) on two
// streams, as the user that this process is: what it may do, and where paths lead, is the kernel's to say.
func serveSFTP(in io.Reader, out io.WriteCloser) error {
	home, err := os.Getwd()
	if err != nil {
		home = "/"
	}
	s, err := sftp.NewServer(struct {
		io.Reader
		io.WriteCloser
	}{in, out}, sftp.WithServerWorkingDirectory(home))
	if err != nil {
		return err
	}
	if err = s.Serve(); errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
