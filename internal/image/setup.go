package image

import (
	"fmt"
	"strings"
)

// hookScript is the hook of mmdebstrap. It runs when the tree is empty, to copy the
// package lists that the build has fetched, and after the packages are
// installed.
const hookScript = `#!/bin/sh
set -eu
umask 022
here=$(dirname "$0")
case $MMDEBSTRAP_HOOK in
setup)
	mkdir -p "$1/var/lib/apt/lists/partial"
	for f in "$here"/apt/lists/*Packages* "$here"/apt/lists/*Release*; do
		[ ! -f "$f" ] || cp "$f" "$1/var/lib/apt/lists/"
	done
	if [ -f "$here/from.tar" ]; then
		tar -C "$1" --numeric-owner --xattrs --xattrs-include='*' --keep-directory-symlink -xpf "$here/from.tar"
		rm "$here/from.tar"
	fi
	;;
customize)
	if [ -f "$here/packages" ]; then
		exec 3>&- # the build's lock is nothing for somebody else's programs
		echo "I: installing remaining packages"
		APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" xargs -a "$here/packages" apt-get --yes --no-install-recommends \
			-o Dir::Bin::dpkg=env -o DPkg::Options::=--unset=TMPDIR -o DPkg::Options::=dpkg \
			-o DPkg::Options::=--force-confold -o Dpkg::Use-Pty=false -o DPkg::Chroot-Directory="$1" install
	fi
	echo "holt: files"
	tar -C "$1" --keep-directory-symlink -xf "$here/overlay.tar"
	env -u TMPDIR chroot "$1" /bin/sh -eu "/` + setupPath + `" "$(cat "$here/release")"
	;;
esac
`

// masked are units that cost boot time and are useless in a computer. It has no
// consoles, the guest agent configures its network, the host provides entropy, its
// log is in memory, and modules load on demand.
func masked() []string {
	return []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
		"e2scrub_reap.service", "man-db.timer",
		"getty@tty1.service", "serial-getty@ttyS0.service", "console-getty.service",
		"systemd-ask-password-console.path", "systemd-ask-password-wall.path",
		"systemd-networkd-wait-online.service", "systemd-pstore.service", "systemd-firstboot.service",
		"systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "systemd-initctl.socket",
		"systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "systemd-repart.service",
		"systemd-pcrphase.service", "systemd-pcrphase-sysinit.service", "systemd-hwdb-update.service",
		"systemd-journal-flush.service", "systemd-random-seed.service", "systemd-machine-id-commit.service",
		"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "dev-hugepages.mount",
		"modprobe@configfs.service", "modprobe@drm.service", "modprobe@efi_pstore.service",
		"modprobe@dm_mod.service", "modprobe@loop.service", "modprobe@fuse.service",
	}
}

// maskedGenerators are systemd's generators for features that a computer does not have:
// encrypted or verified disks, partitions, consoles, hibernation. systemd waits for
// each generator before it starts units.
func maskedGenerators() []string {
	return []string{
		"bless-boot", "cryptsetup", "debug", "getty", "gpt-auto", "hibernate-resume", "integritysetup",
		"rc-local", "run", "system-update", "veritysetup",
	}
}

// setupScript returns the script that runs as root in the tree after packages and
// files are installed. Its argument is the kernel's release.
func setupScript(r Recipe, extra bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("umask 022")
	line(`echo "holt: modules"`)
	line(`depmod "$1"`)
	line(`echo "holt: users"`)
	for _, u := range r.Users {
		if r.From != "" {
			b.WriteString(takeUserScript(u))
		}
		b.WriteString(userScript(u))
	}
	if extra {
		line(`echo "holt: certificates"`)
		line("update-ca-certificates")
	}
	for i, command := range r.Setup {
		line("echo \"holt: setup %d of %d\"", i+1, len(r.Setup))
		line("/bin/sh -e -c %s", quote(command))
	}
	line(`echo "holt: services"`)
	for _, c := range []struct {
		verb  string
		units []string
	}{
		{"enable", defined(r.Services.Define)}, {"enable", r.Services.Enable}, {"disable", r.Services.Disable},
		{"mask", masked()}, {"mask", r.Services.Mask},
	} {
		for _, unit := range c.units {
			line("systemctl %s %s", c.verb, quote(unit))
		}
	}
	line("mkdir -p /etc/systemd/system-generators")
	for _, g := range maskedGenerators() {
		line("ln -sf /dev/null /etc/systemd/system-generators/systemd-%s-generator", g)
	}
	b.WriteString(finishScript)
	return b.String()
}

// finishScript removes the files of the build from the tree. The files .updated tell
// systemd that caches of /usr are up to date, so that the first boot does not
// make them again.
const finishScript = `echo "holt: finish"
rm -f /` + setupPath + ` /etc/resolv.conf /etc/apt/sources.list /etc/apt/apt.conf.d/99mmdebstrap
rm -f /etc/apt/sources.list.d/0000* /etc/dpkg/dpkg.cfg.d/99mmdebstrap /etc/modules-load.d/modules.conf
printf 'nameserver 10.0.2.3\n' > /etc/resolv.conf
rm -rf /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*.log /var/log/apt
for d in /etc /var; do
	printf '# holt\nTIMESTAMP_NSEC=%s\n' "$(date +%s%N)" > $d/.updated
	touch $d/.updated
done
`

// takeUserScript removes the user and group that an OCI image has with a user's number or
// name. Files of that number keep it.
func takeUserScript(u User) string {
	return fmt.Sprintf(`for who in %d %s; do
	name=$(getent passwd $who | cut -d: -f1)
	[ -z "$name" ] || userdel -f "$name"
	name=$(getent group $who | cut -d: -f1)
	[ -z "$name" ] || groupdel -f "$name"
done
`, u.UID, u.Name)
}

func userScript(u User) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	home, shell := u.Home, u.Shell
	if home == "" {
		home = "/home/" + u.Name
	}
	if shell == "" {
		shell = "/bin/bash"
	}
	line("groupadd -g %d %s", u.UID, u.Name)
	line("useradd -M -u %d -g %d -s %s -d %s %s", u.UID, u.UID, quote(shell), quote(home), u.Name)
	line("mkdir -p %s", quote(home))
	// A mount point belongs to root, so that writes fail while nothing is mounted
	// there.
	if home != agentHome {
		line("cp -a /etc/skel/. %s", quote(home))
		line("chown -R %d:%d %s", u.UID, u.UID, quote(home))
	}
	for _, g := range u.Groups {
		line("getent group %s >/dev/null || groupadd -r %s", g, g)
		line("usermod -a -G %s %s", g, u.Name)
	}
	if u.Sudo {
		line("mkdir -p /etc/sudoers.d")
		line("echo '%s ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/%s", u.Name, u.Name)
		line("chmod 0440 /etc/sudoers.d/%s", u.Name)
	}
	return b.String()
}

// quote quotes s for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// defined returns the unit names of services.
func defined(services []Service) (names []string) {
	for _, s := range services {
		names = append(names, s.Name+".service")
	}
	return names
}
