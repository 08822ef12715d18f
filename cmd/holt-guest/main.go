// Command holt-guest is the program inside every computer: PID 1 of the
// initramfs, which brings the machine up, and the guest agent. It holds no
// logic; see package agent.
package main

import (
	"os"

	"holt/internal/guest/agent"
)

func main() { os.Exit(agent.Main(os.Args[1:])) }
