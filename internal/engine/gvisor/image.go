package gvisor

import (
	"encoding/binary"

	"holt"
)

const lengthBytes = 8

// StateTail returns what follows the sentry's state in an image's state file.
func StateTail(table []byte) []byte {
	return binary.BigEndian.AppendUint64(table, uint64(len(table)))
}

// SplitState returns the two parts of an image's state file, or Corrupt.
func SplitState(b []byte) (state, table []byte, err error) {
	at := len(b) - lengthBytes
	if at < 0 {
		return nil, nil, holt.Errorf(holt.Corrupt, "the state of the machine image is too short")
	}
	n := binary.BigEndian.Uint64(b[at:])
	if n > uint64(at) {
		return nil, nil, holt.Errorf(holt.Corrupt, "the state of the machine image has an invalid length")
	}
	return b[:at-int(n)], b[at-int(n) : at], nil
}
