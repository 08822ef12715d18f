package mount

import (
	"testing"

	"golang.org/x/sys/unix"

	"holt/internal/workspace"
)

// TestPrivileges checks set-id programs, programs with capabilities and
// devices: in a guest, which has its own machine, they work; host mounts store
// them but do not honour them.
func TestPrivileges(t *testing.T) {
	t.Run("host", func(t *testing.T) {
		privileges(t, hostMount(t, newWorkspace(t), HostOptions{}), false)
	})
	t.Run("guest", func(t *testing.T) {
		ws, k := newWorkspace(t), newKernel(t)
		serveGuest(t, ws, k, GuestOptions{})
		if err := unix.Mount("", k.dir, "", unix.MS_REMOUNT, ""); err != nil { // as the agent mounts it
			t.Fatal(err)
		}
		privileges(t, k.dir, true)

		// The same holds in a checkpoint, whose files the guest's root created.
		if _, err := ws.Checkpoint(workspace.CheckpointOptions{Name: "made"}); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, k.dir, asAgent+".holt/checkpoints/made/id -u"); got != "0\n" {
			t.Errorf("a set-id program of a checkpoint runs as %q", got)
		}
	})
}

const asAgent = "setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all "

func privileges(t *testing.T, dir string, work bool) {
	sh(t, dir, `chmod 755 .
		cp "$(command -v id)" id; cp id gid; chmod 4755 id; chmod 2755 gid
		echo secret > secret; chmod 600 secret; cp /bin/cat cat; setcap cap_dac_override=ep cat
		mkdir dev; mknod -m 666 dev/null c 1 3; mknod dev/loop b 7 0
		tar cf dev.tar dev; mkdir unpacked; tar xf dev.tar -C unpacked`)
	for _, c := range []struct{ do, works, refused string }{
		{asAgent + "./id -u", "0\n", "1000\n"},
		{asAgent + "./gid -g", "0\n", "1000\n"},
		{asAgent + "./cat secret 2>/dev/null || echo refused", "secret\n", "refused\n"},
		{"(echo x > dev/null) 2>/dev/null && cat dev/null && echo fine || echo refused", "fine\n", "refused\n"},
		{"(echo x > unpacked/dev/null) 2>/dev/null && echo fine || echo refused", "fine\n", "refused\n"},
		{"stat -c '%F %t %T' dev/null unpacked/dev/null unpacked/dev/loop", kept, kept},
		{"stat -c %a id gid; getcap cat", "4755\n2755\ncat cap_dac_override=ep\n", "4755\n2755\ncat cap_dac_override=ep\n"},
		{asAgent + "sh -c 'mknod mine c 1 3' 2>/dev/null || echo refused", "refused\n", "refused\n"}, // root only, as anywhere
	} {
		want := c.works
		if !work {
			want = c.refused
		}
		if got := sh(t, dir, c.do); got != want {
			t.Errorf("%s says %q, want %q", c.do, got, want)
		}
	}
}

const kept = "character special file 1 3\ncharacter special file 1 3\nblock special file 7 0\n"
