package channel

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net"
)

const (
	packetHeader = 4
	packetData   = 0x01
	maxPacket    = 64 << 10 // bytes of payload
	// minZeros is the minimum number of zeros before the magic. The preamble has
	// maxPacket more, which an incomplete packet may swallow.
	minZeros  = 4 << 10
	zeroCount = maxPacket + minZeros + packetHeader
	magicSize = 16
	nonceSize = 16
)

// ErrHungUp is returned by a write when no host is connected.
var ErrHungUp = errors.New("no host is connected")

// errWoken is returned by a read or write of a [Line] after a wake.
var errWoken = errors.New("woken")

// errStrayed is returned when the stream is out of sync: the session is over,
// and the next preamble must be found.
var errStrayed = errors.New("the stream is out of sync")

// magic marks the end of a preamble. It is computed so that this program's
// binary does not contain it.
func magic() [magicSize]byte {
	sum := sha256.Sum256([]byte("holt channel session, version 1"))
	sum[0] |= 0x80 // not zero, so that it ends the zeros
	return [magicSize]byte(sum[:magicSize])
}

type nonce [nonceSize]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never fails
	return n
}

// echo returns the guest's answer to a preamble with n.
func (n nonce) echo() []byte {
	m := magic()
	return append(m[:], n[:]...)
}

func (n nonce) preamble() []byte {
	b := make([]byte, zeroCount, zeroCount+magicSize+nonceSize)
	return append(b, n.echo()...)
}

// packets inserts packet headers between bufs, without copying, for one writev.
func packets(bufs [][]byte) net.Buffers {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	count := (total + maxPacket - 1) / maxPacket
	headers := make([]byte, 0, count*packetHeader)
	out := make(net.Buffers, 0, 2*count+len(bufs))
	left := 0 // bytes left in the current packet
	for _, b := range bufs {
		for len(b) > 0 {
			if left == 0 {
				left = min(total, maxPacket)
				total -= left
				at := len(headers)
				headers = binary.BigEndian.AppendUint32(headers, packetData<<24|uint32(left))
				out = append(out, headers[at:])
			}
			n := min(left, len(b))
			out = append(out, b[:n])
			b, left = b[n:], left-n
		}
	}
	return out
}
