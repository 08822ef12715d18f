package computer

import (
	"time"

	"holt"
)

// Observer receives measurements. It is called concurrently and must not block. Nil fields are not
// called.
type Observer struct {
	Agent    func(op string, took time.Duration, err error)    // a guest agent was asked for something
	Wake     func(from holt.ComputerState, took time.Duration) // a stopped or paused computer was woken
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
