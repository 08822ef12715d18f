package jail

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkStart starts and ends a program, in a jail with five files and without one.
func BenchmarkStart(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Fatal("only root makes jails")
	}
	c := Cell{User: User("bench")}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		path := filepath.Join(b.TempDir(), name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			b.Fatal(err)
		}
		c.Files = append(c.Files, File{Path: path})
	}
	for _, way := range []struct {
		name  string
		start func(*exec.Cmd) error
	}{{"jail", c.Start}, {"none", (*exec.Cmd).Start}} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				err := Thread(func() error {
					cmd := exec.Command("/bin/true")
					if err := way.start(cmd); err != nil {
						return err
					}
					return cmd.Wait()
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
