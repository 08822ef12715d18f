package machine

import (
	"os"
	"testing"
	"time"
)

// Consumption covers the process's work and never decreases.
func TestConsumed(t *testing.T) {
	before, err := Consumed(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := before.CPU + 50*time.Millisecond; ; {
		now, err := Consumed(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now.Process != before.Process || now.CPU < before.CPU || now.Age < before.Age || now.Age > time.Hour {
			t.Fatalf("%+v after %+v", now, before)
		}
		if now.CPU >= end {
			break
		}
	}
	if is, err := Identify(os.Getpid()); err != nil || is != before.Process {
		t.Errorf("it is %+v, not %+v: %v", before.Process, is, err)
	}
	if _, err := Consumed(1 << 30); err == nil {
		t.Error("a process that is not there has used something")
	}
}
