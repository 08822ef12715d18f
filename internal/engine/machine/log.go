package machine

import (
	"io"
	"os"
	"strings"
)

// EndOfLog returns the last 1,000 bytes of a log, for an error.
func EndOfLog(path string) string {
	const most = 1000
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Seek(-most, io.SeekEnd); err != nil {
		f.Seek(0, io.SeekStart) // it is shorter
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}
