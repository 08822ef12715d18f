package local

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"holt/internal/engine/machine"
)

// endFile records how a machine ended, if the process that started it was still alive.
const endFile = "ended"

// sayEnd records how the machine ended. In a PID namespace, reboot(2) ends PID
// 1 with a signal that depends on its argument; only the parent sees it.
func (g *guest) sayEnd() {
	if g.child == nil {
		return
	}
	g.reaped.Wait()
	kind := machine.EndUnknown
	switch {
	case g.status.Signal() == unix.SIGHUP: // restart
		kind = machine.EndReboot
	case g.status.Signal() == unix.SIGINT: // power off, halt
		kind = machine.EndOff
	default:
		return
	}
	if err := os.WriteFile(g.Dir.File(endFile), []byte(kind), 0o600); err != nil {
		g.engine.log.Warn("record how a machine ended", "dir", g.Dir.Path, "err", err)
	}
}

// Ended implements [machine.Engine].
func (e *Engine) Ended(dir string) machine.Ending {
	b, _ := os.ReadFile(filepath.Join(dir, endFile)) // usually there is none
	switch kind := machine.EndKind(b); kind {
	case machine.EndReboot, machine.EndOff:
		return machine.Ending{Kind: kind}
	}
	return machine.Ending{}
}
