package cli

import (
	"strings"
	"testing"
)

// TestWithoutKVM: what runs computers is said where it is not KVM, with what it means.
func TestWithoutKVM(t *testing.T) {
	for _, c := range []struct{ asked, engine, says string }{
		{"auto", "qemu-kvm", ""},
		{"auto", "gvisor", "Docker and kernel modules need --engine qemu"},
		{"auto", "qemu-tcg", "no gVisor sandboxes"},
		{"qemu", "qemu-kvm", ""},
		{"qemu", "qemu-tcg", "--engine gvisor"},
		{"gvisor", "gvisor", ""},
		{"local", "local", ""},
	} {
		if got := withoutKVM(c.asked, c.engine); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s, and it is %s: %q", c.asked, c.engine, got)
		}
	}
}
