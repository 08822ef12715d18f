package agent

import (
	"golang.org/x/sys/unix"

	"holt"
)

// Opcodes of terminal modes, RFC 4254, section 8, and RFC 8160 (IUTF8).
var (
	modeChars = map[uint8]int{
		1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF, 6: unix.VEOL, 7: unix.VEOL2,
		8: unix.VSTART, 9: unix.VSTOP, 10: unix.VSUSP, 12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT, 18: unix.VDISCARD,
	}
	modeInput = map[uint8]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR, 35: unix.IGNCR, 36: unix.ICRNL,
		37: unix.IUCLC, 38: unix.IXON, 39: unix.IXANY, 40: unix.IXOFF, 41: unix.IMAXBEL, 42: unix.IUTF8,
	}
	modeLocal = map[uint8]uint32{
		50: unix.ISIG, 51: unix.ICANON, 52: unix.XCASE, 53: unix.ECHO, 54: unix.ECHOE, 55: unix.ECHOK, 56: unix.ECHONL,
		57: unix.NOFLSH, 58: unix.TOSTOP, 59: unix.IEXTEN, 60: unix.ECHOCTL, 61: unix.ECHOKE, 62: unix.PENDIN,
	}
	modeOutput = map[uint8]uint32{
		70: unix.OPOST, 71: unix.OLCUC, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET,
	}
)

// setModes sets a terminal's modes, and ignores unknown ones, including speeds and parity.
func setModes(fd int, modes []holt.TerminalMode) error {
	if len(modes) == 0 {
		return nil
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	for _, m := range modes[:min(len(modes), holt.MostTerminalModes)] {
		if at, ok := modeChars[m.Op]; ok {
			t.Cc[at] = uint8(m.Value) // 255: no key
			if m.Value == 255 {
				t.Cc[at] = 0
			}
		}
		for _, flags := range []struct {
			of  map[uint8]uint32
			all *uint32
		}{{modeInput, &t.Iflag}, {modeLocal, &t.Lflag}, {modeOutput, &t.Oflag}} {
			if bit, ok := flags.of[m.Op]; ok && m.Value != 0 {
				*flags.all |= bit
			} else if ok {
				*flags.all &^= bit
			}
		}
	}
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}
