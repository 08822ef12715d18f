package access

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"holt"
	"holt/internal/store/journal"
)

// OpenKeyFile returns the 32 random bytes of a file, which is made if there is none, with mode 0600. derived names what becomes
// invalid with another key, such as "existing links".
//
// Errors: Corrupt (the file has another size), those of the file.
func OpenKeyFile(file, derived string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(key) == 0 { // empty after a power loss: nothing is derived from it
		key = make([]byte, keyBytes)
		rand.Read(key) // never fails, see crypto/rand
		err = keep(file, key)
	}
	if err == nil && len(key) != keyBytes {
		err = holt.Errorf(holt.Corrupt, "%s is not a key", file).WithHint("remove it: holt makes a new one, and %s become invalid", derived)
	}
	return key, err
}

// keep makes a file that survives power loss, with mode 0600.
func keep(file string, b []byte) error {
	f, err := os.OpenFile(file+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(file+".new", file)
	}
	if err == nil {
		err = journal.OS{}.SyncDir(filepath.Dir(file))
	}
	return err
}
