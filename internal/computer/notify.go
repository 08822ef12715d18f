package computer

// notification wakes one waiter, now or when it next waits; several notifications are one.
type notification chan struct{}

func newNotification() notification { return make(notification, 1) }

func (b notification) notify() {
	select {
	case b <- struct{}{}:
	default:
	}
}
