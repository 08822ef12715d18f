package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A fork also copies the state of programs: random bytes drawn ahead, the state
// of a generator. Programs can detect the copy by the generation: a file that
// exists while the machine is up and is replaced in each copy, and a systemd
// target that is restarted in each copy.
const (
	generationFile = "run/holt/generation"
	forkTarget     = "holt-fork.target"
	forkUnit       = "run/systemd/system/" + forkTarget

	forkTargetText = "[Unit]\nDescription=Units that are restarted in each fork of this computer\n"

	// restartWait is how long a fork waits for the target's units to restart.
	restartWait = 20 * time.Second
	maxForkUnit = 64 << 10 // bytes of a unit file that are read
)

// newGeneration tells programs that this machine is a copy of another. It waits
// for the units of the target to restart, at most restartWait.
func newGeneration(ctx context.Context, log *slog.Logger, root string, restart func(context.Context) error) error {
	if err := writeGeneration(root); err != nil {
		return err
	}
	if restart == nil || !wantsForks(root) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, restartWait)
	defer cancel()
	if err := restart(ctx); err != nil {
		log.Warn("not all units of holt-fork.target were restarted", "err", err)
	}
	return nil
}

// writeGeneration writes the next generation: an increasing number, and 16 random bytes.
func writeGeneration(root string) error {
	path := filepath.Join(root, generationFile)
	number := 0
	if old, err := os.ReadFile(path); err == nil {
		fmt.Sscan(string(old), &number)
	}
	var id [16]byte
	rand.Read(id[:]) // from the kernel's generator, which was reseeded
	for _, file := range []struct{ path, text string }{
		{path, fmt.Sprintf("%d %x\n", number+1, id)},
		{filepath.Join(root, forkUnit), forkTargetText},
	} {
		if err := os.MkdirAll(filepath.Dir(file.path), 0o755); err != nil {
			return fmt.Errorf("write generation: %w", err)
		}
		if err := replaceFile(file.path, file.text); err != nil {
			return fmt.Errorf("write generation: %w", err)
		}
	}
	return nil
}

// wantsForks reports whether a unit names the target. Asking systemd would cost
// each fork a process.
func wantsForks(root string) bool {
	for _, pattern := range []string{"etc/systemd/system/*.service", "etc/systemd/system/*.d/*.conf", "etc/systemd/system/" + forkTarget + ".*/*", "usr/lib/systemd/system/" + forkTarget + ".*/*"} {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range paths {
			if strings.Contains(path, forkTarget) || names(path, forkTarget) {
				return true
			}
		}
	}
	return false
}

// names reports whether a regular file contains a word.
func names(path, word string) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxForkUnit))
	return strings.Contains(string(text), word)
}

// restartForked starts units that the target wants, and restarts running units that are part of it.
func restartForked(ctx context.Context) error {
	_, err := systemctl(ctx, "restart", forkTarget)
	return err
}
