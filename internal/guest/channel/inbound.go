package channel

import (
	"bytes"
	"encoding/binary"
	"io"
)

// directRead is the size from which payload is read directly into the
// consumer's buffer: the maximum of one read of a virtio-serial port.
const directRead = 4 << 10

// inbound decodes the host's stream. Its position survives the end of a
// session, because the rest of an incomplete packet must be skipped. It is not
// safe for concurrent use.
type inbound struct {
	r    io.Reader
	buf  [16 << 10]byte
	at   int // buf[at:end] has been read and not consumed
	end  int
	left int // payload bytes left of the current packet

	scanning bool // looking for a preamble
	zeros    int  // consecutive zeros while scanning
}

// read fills p with payload. It returns errStrayed when a new session begins or
// the stream is invalid; find must be called then.
func (in *inbound) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if in.scanning {
			return 0, errStrayed
		}
		if in.left > 0 {
			return in.payload(p)
		}
		if in.end-in.at < packetHeader {
			if err := in.fill(); err != nil {
				return 0, err
			}
			continue
		}
		in.header()
	}
}

func (in *inbound) payload(p []byte) (int, error) {
	p = p[:min(len(p), in.left)]
	if in.at == in.end {
		if len(p) >= directRead {
			n, err := in.r.Read(p)
			in.left -= n
			return n, err
		}
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.buf[in.at:in.end])
	in.at += n
	in.left -= n
	return n, nil
}

// header decodes a packet's header, which must be complete.
func (in *inbound) header() {
	h := binary.BigEndian.Uint32(in.buf[in.at:])
	n := int(h & 0xffffff)
	if h>>24 != packetData || n == 0 || n > maxPacket {
		in.scanning, in.zeros = true, 0
		return
	}
	in.at += packetHeader
	in.left = n
}

// fill reads at least one more byte into buf.
func (in *inbound) fill() error {
	if in.at > 0 {
		in.end = copy(in.buf[:], in.buf[in.at:in.end])
		in.at = 0
	}
	n, err := in.r.Read(in.buf[in.end:])
	in.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// find skips everything up to and including the next preamble and returns its
// nonce. After an error of the reader it can be called again.
func (in *inbound) find() (nonce, error) {
	for {
		if !in.scanning {
			if err := in.drop(); err != nil {
				return nonce{}, err
			}
			continue
		}
		if n, ok, err := in.scan(); ok || err != nil {
			return n, err
		}
	}
}

// drop skips packets of a session that has ended.
func (in *inbound) drop() error {
	if in.at == in.end || (in.left == 0 && in.end-in.at < packetHeader) {
		return in.fill()
	}
	if in.left == 0 {
		in.header()
		return nil
	}
	n := min(in.left, in.end-in.at)
	in.at += n
	in.left -= n
	return nil
}

// scan scans the buffer, or reads more.
func (in *inbound) scan() (n nonce, ok bool, err error) {
	for in.at < in.end && in.buf[in.at] == 0 {
		in.at++
		in.zeros++
	}
	if in.at == in.end {
		return n, false, in.fill()
	}
	m := magic()
	have := in.buf[in.at:in.end]
	if in.zeros < minZeros || !bytes.HasPrefix(m[:], have[:min(len(have), magicSize)]) {
		in.at++
		in.zeros = 0
		return n, false, nil
	}
	if len(have) < magicSize+nonceSize {
		return n, false, in.fill()
	}
	copy(n[:], have[magicSize:])
	in.at += magicSize + nonceSize
	in.scanning, in.left = false, 0
	return n, true, nil
}
