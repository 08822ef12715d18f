package machine

// Ending is how a machine ended, as far as its engine knows.
type Ending struct {
	Kind EndKind
	// Panic is the line in which the guest's kernel said why it panicked. A guest chose these bytes; they are few.
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
