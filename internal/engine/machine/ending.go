package machine

// Ending is how a machine ended, if its engine knows.
type Ending struct {
	Kind EndKind
	// Panic is the line of the guest's kernel with the reason of a panic. The guest
	// controls its content; its length is limited.
	Panic string
}

// EndKind says what ended a machine.
type EndKind string

// The kinds of endings.
const (
	EndUnknown EndKind = ""       // its process was killed, or failed
	EndOff     EndKind = "off"    // the guest powered it off
	EndReboot  EndKind = "reboot" // the guest asked for a reset
	EndPanic   EndKind = "panic"  // the guest's kernel panicked
)
