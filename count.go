package holt

import (
	"fmt"
	"strings"
	"time"
)

// CountOf formats a number with its noun: 1 process, 2 processes.
func CountOf[N ~int | ~int64](n N, noun string) string {
	if n != 1 {
		noun = plural(noun)
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// plural returns the plural of a noun or a phrase that ends with one.
func plural(noun string) string {
	switch {
	case strings.HasSuffix(noun, "s"):
		return noun + "es"
	case strings.HasSuffix(noun, "ry"):
		return noun[:len(noun)-1] + "ies"
	}
	return noun + "s"
}

// ShortDuration formats a duration as 2h, not 2h0m0s.
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ShortMS formats milliseconds: 1h30m, 12s, 250ms. Fractions of a second appear only below ten seconds.
func ShortMS(ms int64) string {
	d := time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
	if d >= 10*time.Second {
		d = d.Truncate(time.Second)
	}
	return ShortDuration(d)
}
