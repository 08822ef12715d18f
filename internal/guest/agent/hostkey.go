package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"holt"
)

// hostKeyKinds are the kinds of SSH host keys to generate. RSA is not included:
// it takes an emulated processor up to a minute, and all current clients
// support the others.
var hostKeyKinds = []string{"ed25519", "ecdsa"}

const (
	maxHostKeys = 16       // maximum of a machine
	maxHostKey  = 64 << 10 // maximum size of one, bytes
)

// newHostKeys replaces the SSH host keys in dir and returns the old and new
// fingerprints. A machine without keys gets none. It may be repeated after an
// interruption, and then generates other keys.
func newHostKeys(ctx context.Context, dir string) (former, now []string, err error) {
	old, err := filepath.Glob(filepath.Join(dir, "ssh_host_*_key*"))
	if err != nil || len(old) == 0 {
		return nil, nil, err
	}
	if former, err = hostKeys(dir); err != nil {
		return nil, nil, err
	}
	kinds := slices.DeleteFunc(slices.Clone(hostKeyKinds), func(kind string) bool {
		return !slices.Contains(old, hostKey(dir, kind))
	})
	if len(kinds) == 0 {
		kinds = hostKeyKinds[:1]
	}
	making := filepath.Join(dir, ".holt-host-keys")
	if err := errors.Join(os.RemoveAll(making), os.Mkdir(making, 0o700)); err != nil {
		return nil, nil, fmt.Errorf("make SSH host key: %w", err)
	}
	defer os.RemoveAll(making)
	var made []string
	for _, kind := range kinds {
		out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", hostKey(making, kind)).CombinedOutput()
		if err != nil {
			return nil, nil, holt.Errorf(holt.Unavailable, "make SSH host key: %w: %s", err, clip(strings.TrimSpace(string(out))))
		}
		made = append(made, hostKey(dir, kind), hostKey(dir, kind)+".pub")
	}
	for _, path := range made {
		from := filepath.Join(making, filepath.Base(path))
		if err := errors.Join(syncPath(from), os.Rename(from, path)); err != nil {
			return nil, nil, fmt.Errorf("replace SSH host key: %w", err)
		}
	}
	for _, path := range old {
		if slices.Contains(made, path) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return nil, nil, fmt.Errorf("remove SSH host key: %w", err)
		}
	}
	if now, err = hostKeys(dir); err != nil {
		return nil, nil, err
	}
	return former, now, reloadSSH()
}

func hostKey(dir, kind string) string { return filepath.Join(dir, "ssh_host_"+kind+"_key") }

// hostKeys returns the fingerprints of the SSH host keys in dir.
func hostKeys(dir string) (all []string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "ssh_host_*_key"))
	if err == nil && len(paths) > maxHostKeys {
		err = holt.Errorf(holt.TooMany, "too many SSH host keys: %d in %s; at most %d are allowed", len(paths), dir, maxHostKeys)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // not a key for sshd
		}
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read SSH host key: %w", err)
		}
		file, err := io.ReadAll(io.LimitReader(f, maxHostKey))
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read SSH host key: %w", err)
		}
		all = append(all, fingerprint(file))
	}
	return all, nil
}

// fingerprint returns the fingerprint of a private key's file, as ssh-keygen -l
// does: the SHA-256 of its public half, which OpenSSH's format stores in the
// clear (PROTOCOL.key). For other formats it is the SHA-256 of the file.
func fingerprint(file []byte) string {
	public := file
	if block, _ := pem.Decode(file); block != nil {
		if rest, ok := bytes.CutPrefix(block.Bytes, []byte("openssh-key-v1\x00")); ok {
			for range 3 { // cipher, key derivation, its options
				_, rest = cutString(rest)
			}
			if key, _ := cutString(rest[min(4, len(rest)):]); len(key) > 0 { // after the number of keys
				public = key
			}
		}
	}
	sum := sha256.Sum256(public)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// cutString cuts off a string (RFC 4251): a length of four bytes, and the bytes.
func cutString(b []byte) (s, rest []byte) {
	if len(b) < 4 {
		return nil, nil
	}
	n := min(int64(binary.BigEndian.Uint32(b)), int64(len(b)-4))
	return b[4 : 4+n], b[4+n:]
}

// reloadSSH makes a running sshd reload its keys (SIGHUP, sshd(8)).
func reloadSSH() error {
	b, err := os.ReadFile("/run/sshd.pid")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reload sshd: %w", err)
	}
	var pid int
	if _, err := fmt.Sscan(string(b), &pid); err != nil || pid <= 1 {
		return holt.Errorf(holt.Corrupt, "reload sshd: its pid file has %q", clip(string(b)))
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if strings.TrimSpace(string(name)) != "sshd" {
		return nil // it has ended, and its pid may be reused
	}
	if err := unix.Kill(pid, syscall.SIGHUP); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("reload sshd: %w", err)
	}
	return nil
}
