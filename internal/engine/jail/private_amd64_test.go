package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// opensVar makes this program open files as QEMU opens memory, see opens.
const opensVar = "HOLT_JAIL_OPENS"

// init keeps the opening program on its first thread, like QEMU: other threads are not traced.
func init() {
	if os.Getenv(opensVar) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if files := os.Getenv(opensVar); files != "" {
		opens(strings.Split(files, ":"))
		return
	}
	os.Exit(m.Run())
}

// opens writes to a private mapping of each file and to the file, and opens it again.
func opens(files []string) {
	for _, path := range files {
		fd, err := unix.Open(path, unix.O_RDWR, 0)
		if err != nil {
			fmt.Println("open", err)
			continue
		}
		b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		if err == nil {
			b[0]++
		}
		fmt.Println("map", err, "of", len(b))
		_, err = unix.Write(fd, []byte("bad"))
		fmt.Println("write", err)
	}
	for _, path := range files {
		_, err := unix.Open(path, unix.O_RDWR, 0)
		fmt.Println("again", err)
		_, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		fmt.Println("otherwise", err)
	}
}

// TestPrivate: a program that opens private files for reading and writing can
// map and read them, but not write to them; later it cannot open other files in
// that way.
func TestPrivate(t *testing.T) {
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Cell{User: User("a"), Private: []string{file(t, dir, "memory", strings.Repeat("m", 4096)), file(t, dir, "memory-1", strings.Repeat("n", 4096))}}
	cmd := exec.Command(self)
	cmd.Env = []string{opensVar + "=" + strings.Join(c.Private, ":")}
	said, err := says(t, c, cmd)
	one, after := "map <nil> of 4096\nwrite bad file descriptor\n", "again function not implemented\notherwise read-only file system\n"
	if want := one + one + after + after; err != nil || said != want {
		t.Errorf("%v\n%s", err, said)
	}
	for i, path := range c.Private {
		if b, err := os.ReadFile(path); err != nil || string(b) != strings.Repeat(string("mn"[i]), 4096) {
			t.Errorf("%s has changed, %v", path, err)
		}
	}
	// A program that ends without opening them is not waited for.
	err = Thread(func() error { return c.Start(exec.Command("/bin/true")) })
	if !errors.Is(err, errEnded) {
		t.Errorf("a program that opens none: %v", err)
	}
}
