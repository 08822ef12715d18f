package main

import (
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// linkUp lets the guest have frames of its network, and says how many it has taken.
func linkUp() (string, error) {
	link, err := net.InterfaceByName("eth0")
	if err != nil {
		return "", err
	}
	if link.Flags&net.FlagUp == 0 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		r, err := unix.NewIfreq(link.Name)
		if err != nil {
			return "", err
		}
		r.SetUint16(unix.IFF_UP)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return "", err
		}
	}
	taken, err := os.ReadFile("/sys/class/net/eth0/statistics/rx_packets")
	return strings.TrimSpace(string(taken)), err
}
