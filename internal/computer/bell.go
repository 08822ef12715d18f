package computer

// bell wakes the one who waits at it, or who comes there next: once, however often it was rung before.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
