package computer

// notification wakes the one who waits at it, or who comes there next: once, however often it was rung before.
type notification chan struct{}

func newNotification() notification { return make(notification, 1) }

func (b notification) notify() {
	select {
	case b <- struct{}{}:
	default:
	}
}
