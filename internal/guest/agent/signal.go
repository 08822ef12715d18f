package agent

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"holt"
)

// parseSignal parses a signal's name or number: SIGTERM, TERM, term or 15.
func parseSignal(name string) (unix.Signal, error) {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return unix.Signal(n), nil
	}
	return 0, holt.Errorf(holt.InvalidArgument, "%q is not a signal", clip(name)).
		WithHint("use a name such as SIGTERM or TERM, or a number from 1 to 64")
}

func signalName(sig unix.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(sig))
}
