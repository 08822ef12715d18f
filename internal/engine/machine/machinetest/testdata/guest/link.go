package main

import (
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// linkUp raises the network link and returns the number of frames received.
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
