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

// What a program remembers a fork of the machine has as well: random bytes that it
// drew ahead, the state of a generator of its own. It learns of the copy from
// the generation: a file that is there as long as the machine is up, and is
// replaced by another in each copy, and a target of systemd that is restarted then.
const (
	generationFile = "run/holt/generation"
	forkTarget     = "holt-fork.target"
	forkUnit       = "run/systemd/system/" + forkTarget

	forkTargetText = "[Unit]\nDescription=Units that are restarted in each fork of this computer\n"

	// restartWait bounds how long a fork waits for the target's units to restart.
	restartWait = 20 * time.Second
	maxForkUnit = 64 << 10 // bytes of a unit file that are looked at
)

// newGeneration tells programs that this machine is a copy of another. It waits
// until the units of the target have restarted, for restartWait at most.
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

// writeGeneration replaces the generation by the next one: a number that only grows, and 16
// bytes that no other machine has.
func writeGeneration(root string) error {
	path := filepath.Join(root, generationFile)
	number := 0
	if old, err := os.ReadFile(path); err == nil {
		fmt.Sscan(string(old), &number)
	}
	var id [16]byte
	rand.Read(id[:]) // of the kernel's generator, which was reseeded
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

// wantsForks tells whether a unit names the target. To ask systemd would cost each fork a process.
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

// names tells whether a regular file has a word.
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

// restartForked starts what the target wants, and restarts those that are part
// of it and run.
func restartForked(ctx context.Context) error {
	_, err := systemctl(ctx, "restart", forkTarget)
	return err
}
