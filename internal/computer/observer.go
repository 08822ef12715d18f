package computer

import (
	"time"

	"holt"
)

// Observer is told what goes on, for whoever counts it. It is told concurrently and must not wait; of what is nil nobody is told.
type Observer struct {
	Agent    func(op string, took time.Duration, err error)    // a guest agent was asked for something
	Wake     func(from holt.ComputerState, took time.Duration) // somebody needed a computer that was stopped or paused, and has it
	Attached func(clients int)                                 // so many more clients are attached to terminals; negative: fewer
}

func (o Observer) wake(from holt.ComputerState, began time.Time) {
	if o.Wake != nil {
		o.Wake(from, time.Since(began))
	}
}

// attach counts a client of a terminal until done is called.
func (o Observer) attach() (done func()) {
	if o.Attached == nil {
		return func() {}
	}
	o.Attached(1)
	return func() { o.Attached(-1) }
}
