package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"holt/internal/image"
)

// TestPackageBringsWhatIsMissing: the Debian package depends on all that holt doctor --install would install.
func TestPackageBringsWhatIsMissing(t *testing.T) {
	text, err := os.ReadFile("../../packaging/control.in")
	if err != nil {
		t.Fatal(err)
	}
	var depends []string
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Depends: "); ok {
			for one := range strings.SplitSeq(list, ",") {
				depends = append(depends, strings.Fields(one)[0])
			}
		}
	}
	_, needed := image.Missing(func(string) (string, error) { return "", errors.New("not here") })
	for _, one := range append(needed, "qemu-system-x86", "qemu-utils", "fuse3", "debian-archive-keyring") {
		if essential := one == "dpkg" || one == "tar"; !essential && !slices.Contains(depends, one) {
			t.Errorf("the package does not depend on %s", one)
		}
	}
}

// TestUnit: what a machine needs to live on, and the host to see its mounts, is so in the unit.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../packaging/holt.service")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			set[name] = value
		}
	}
	for name, want := range map[string]string{"Type": "notify", "KillMode": "process", "Delegate": "yes", "Restart": "on-failure", "DelegateSubgroup": "holt-daemon"} {
		if set[name] != want {
			t.Errorf("%s is %q", name, set[name])
		}
	}
	for _, name := range []string{ // mount namespaces, or what machines and images need
		"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts", "PrivateNetwork", "PrivateUsers", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "RootDirectory",
		"ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProtectHostname", "DynamicUser", "MemoryDenyWriteExecute", "RestrictSUIDSGID", "NoNewPrivileges",
		"RestrictNamespaces", "DeviceAllow", "DevicePolicy", "SystemCallFilter", "CapabilityBoundingSet",
	} {
		if set[name] != "" {
			t.Errorf("the unit sets %s=%s", name, set[name])
		}
	}
}

// TestMaintainerScripts: they are shell, and refuse what they do not know.
func TestMaintainerScripts(t *testing.T) {
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		path := "../../packaging/" + script
		if out, err := exec.Command("sh", "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", script, err, out)
		}
	}
	for _, script := range []string{"postinst", "prerm"} {
		if err := exec.Command("sh", "../../packaging/"+script, "nonsense").Run(); err == nil {
			t.Errorf("%s takes anything", script)
		}
	}
}
