package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"holt"
)

// startTags starts tags and returns a function that sends it a datagram.
func startTags(t *testing.T) (*tags, func(datagram string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), tagsName)
	all, err := newTags(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close() })
	fd, err := dialTags(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return all, func(datagram string) {
		t.Helper()
		if _, err := unix.Write(fd, []byte(datagram)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTags(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, send := startTags(t)
	me, run := unix.Gettid(), string(holt.NewRunID())
	if got := all.Of(uint32(me)); got != "" {
		t.Errorf("a thread of which nothing was said: tag %q", got)
	}
	for range 1000 { // what was sent before is seen
		for _, c := range []struct{ comm, group, want string }{
			{"holt:1f", "/computer/init", "for/1f"},
			{"holt:2", "/computer/init", "for/2"},
			{"", "/computer/holt/" + run + "/sub", "run/" + run},
			{"", "/computer/system.slice/cron.service", "unit/cron.service"},
			{"", "/", ""},
		} {
			send(fmt.Sprintf("%d\x00%s\x00%s", me, c.comm, c.group))
			if got := all.Of(uint32(me)); got != c.want {
				t.Fatalf("%+v: tag %q", c, got)
			}
		}
	}
	send(fmt.Sprintf("%d\x00\x00/holt/%s", me, run))
	for _, pid := range []uint32{0, 1, uint32(os.Getppid()), 1 << 30} {
		if got := all.Of(pid); got != "" {
			t.Errorf("process %d, which said nothing, has tag %q", pid, got)
		}
	}
	send(fmt.Sprintf("1\x00\x00/holt/%s", run))
	if got := all.Of(1); got != "" {
		t.Errorf("thread 1 of another process has tag %q", got)
	}
}

func TestEnded(t *testing.T) {
	all, send := startTags(t)
	send("reboot")
	send("off")
	if got := <-all.Ended(); got != "reboot" {
		t.Errorf("ended by %q", got)
	}
}

// A sentry cannot fill the keeper's memory, give it descriptors, or wait for it for ever.
func TestHostileTags(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, send := startTags(t)
	me := unix.Gettid()
	for _, b := range []string{"", "\x00", "\x00\x00", "x\x00\x00/", "-\x00\x00/", "off\x00", fmt.Sprintf("%d\x00\x00/\x00", me), strings.Repeat("\x00", 3000),
		fmt.Sprintf("%d\x00\x00/system.slice/%s/x.service", me, strings.Repeat("a", maxDatagram))} {
		send(b)
	}
	if got := all.Of(uint32(me)); got != "" {
		t.Errorf("tag %q", got)
	}
	for i := range 2 * maxTags {
		send(fmt.Sprintf("%d\x00\x00/system.slice/x.service", i+1<<23))
	}
	all.Of(uint32(me))
	all.mu.Lock()
	if n := len(all.said); n > maxTags {
		t.Errorf("%d threads", n)
	}
	all.mu.Unlock()
	before, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := dialTags(all.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	err = unix.Sendmsg(fd, fmt.Appendf(nil, "%d\x00\x00/system.slice/x.service", me), unix.UnixRights(0, 1, 2), nil, 0)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.Of(uint32(me)); got != "unit/x.service" {
		t.Errorf("tag %q", got)
	}
	if after, _ := os.ReadDir("/proc/self/fd"); len(after) != len(before) {
		t.Errorf("%d descriptors, then %d", len(before), len(after))
	}
}

func TestBootFlags(t *testing.T) {
	for config, want := range map[string]string{
		`{}`: "",
		`{"annotations":{"dev.holt.cpus":"2","other":"x"}}`:                            "--cpu-num=2",
		`{"annotations":{"dev.holt.memory_bytes":"1073741824","dev.holt.cpus":"2"}}`:   "--cpu-num=2 --total-memory=1073741824",
		`{"annotations":{"dev.holt.cpus":"0"}}`:                                        "error",
		`{"annotations":{"dev.holt.cpus":"1 --network=host"}}`:                         "error",
		`{"annotations":{"dev.holt.memory_bytes":"99999999999999999999999999999999"}}`: "error",
		`{`: "error",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		flags, err := bootFlags(dir)
		slices.Sort(flags)
		got := strings.Join(flags, " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", config, got, err, want)
		}
	}
}

func TestIsUmount(t *testing.T) {
	for args, want := range map[string]bool{
		"/proc/self/exe umount --sync-fd=3 /proc": true,
		"/proc/self/exe":                 false,
		"/proc/self/exe network-process": false,
		"/proc/self/exe umount":          false,
		"holt umount --sync-fd=3 /proc":  false,
	} {
		if got := isUmount(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}
