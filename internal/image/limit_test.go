package image

import (
	"strconv"
	"strings"
	"testing"
)

func groundFile(t *testing.T, name string) string {
	t.Helper()
	data, err := ground.ReadFile("ground" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestLimitsOfImages: each kernel limit is at least as high as known programs need.
func TestLimitsOfImages(t *testing.T) {
	got := map[string]int64{}
	reason := false
	for line := range strings.Lines(groundFile(t, "/etc/sysctl.d/50-holt.conf")) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(strings.TrimPrefix(line, "-"), " = "); ok && !strings.HasPrefix(line, "#") {
			words := strings.Fields(value)
			n, err := strconv.ParseInt(words[len(words)-1], 10, 64)
			if err != nil || !reason {
				t.Errorf("%s: not a number, or without its reason: %v", line, err)
			}
			got[name] = n
			continue
		}
		reason = strings.HasPrefix(line, "#")
		if line != "" && !reason {
			t.Errorf("cannot be read: %s", line)
		}
	}
	for name, least := range map[string]int64{
		"fs.inotify.max_user_watches": 524288, "fs.inotify.max_user_instances": 1024, "fs.inotify.max_queued_events": 16384,
		"vm.max_map_count": 262144, "fs.file-max": 1 << 24, "fs.aio-max-nr": 1 << 20, "net.core.somaxconn": 4096,
		"kernel.keys.maxkeys": 2000, "net.ipv4.ping_group_range": 1<<31 - 1, "net.core.rmem_max": 7 << 20,
	} {
		if got[name] < least {
			t.Errorf("%s is %d, want at least %d", name, got[name], least)
		}
	}
	if n, ok := got["kernel.yama.ptrace_scope"]; n != 0 || !ok {
		t.Errorf("kernel.yama.ptrace_scope is %d: a debugger cannot attach", n)
	}
}

// TestLimitsOfSessions: services of the system and of users have the limits that PAM gives to sudo, su and cron.
func TestLimitsOfSessions(t *testing.T) {
	pam := groundFile(t, "/etc/security/limits.d/holt.conf")
	for _, l := range []struct{ item, value, directive string }{
		{"nofile", "1048576", "DefaultLimitNOFILE=1048576"},
		{"memlock", "unlimited", "DefaultLimitMEMLOCK=infinity"},
		{"nproc", "unlimited", "DefaultLimitNPROC=infinity"},
	} {
		for _, who := range []string{"*    - ", "root - "} {
			if line := who + l.item + " " + l.value + "\n"; !strings.Contains(pam, line) {
				t.Errorf("limits.d lacks %q", line)
			}
		}
		for _, dir := range []string{"system", "user"} {
			if !strings.Contains(groundFile(t, "/etc/systemd/"+dir+".conf.d/holt.conf"), l.directive+"\n") {
				t.Errorf("%s.conf.d lacks %s", dir, l.directive)
			}
		}
	}
}
