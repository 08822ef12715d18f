package doctor

import "testing"

// FuzzHostFacts fuzzes the parsers of /proc.
func FuzzHostFacts(f *testing.F) {
	f.Add("processor\t: 0\nmodel name: x\nflags\t: vmx svm\n")
	f.Add("QEMU emulator version 7.2.22 (Debian)\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c := parseCPU(text); c.virt != "" && c.virt != "vmx" && c.virt != "svm" {
			t.Errorf("%+v", c)
		}
		parseQEMUVersion(text)
		unescape(text)
	})
}
