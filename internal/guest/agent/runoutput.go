package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"

	"holt"
)

// RunOutput is a run's output at some time.
type RunOutput struct {
	Run holt.Run // at that time
	// Events are contiguous stdout, stderr and gap events from offset 0.
	Events []holt.RunEvent
	End    int64 // bytes written by the run, both streams together
}

// gapSize is the length of a gap event.
const gapSize = eventHeader + 8

// RunOutput returns the run and the current end of its output, as much as fits
// into last bytes of events. A gap stands for the rest.
func (c *Client) RunOutput(ctx context.Context, id holt.RunID, last int) (RunOutput, error) {
	var out RunOutput
	s, err := c.open(ctx, opRunOutput, runArgs{ID: id, Last: last}, nil)
	if err != nil {
		return out, err
	}
	defer s.Close()
	most := last + gapSize
	buf := make([]byte, maxChunk)
	for {
		e, err := readEvent(s, buf)
		if err == nil {
			out.End, err = vetEvent(e, out.End)
		}
		if err != nil {
			return RunOutput{}, describe(ctx, opRunOutput, err)
		}
		if e.Kind == holt.RunExit {
			out.Run, err = vetRun(*e.Run)
			out.Run.ID = id
			return out, err
		}
		e.Data = bytes.Clone(e.Data)
		if most -= wireSize(e); most < 0 {
			return RunOutput{}, holt.Errorf(holt.Corrupt, "guest sent more than the last %d bytes of a run's output", last)
		}
		out.Events = append(out.Events, e)
	}
}

// wireSize is the length of a stdout, stderr or gap event on the wire.
func wireSize(e holt.RunEvent) int {
	if e.Kind == holt.RunGap {
		return gapSize
	}
	return eventHeader + len(e.Data)
}

// sendOutput sends the current end of a run's output.
func (s *Server) sendOutput(ctx context.Context, st *serverStream) error {
	args, r, err := s.namedRun(st.args)
	if err != nil {
		return err
	}
	info := r.snapshot() // first: if it has ended, the output is complete
	pieces, end := r.output.last(args.Last)
	if err := st.agree(nil); err != nil {
		return err
	}
	_, cancel := st.untilClosed(ctx)
	defer cancel()
	at := int64(0)
	gap := func(to int64) error {
		if to == at {
			return nil
		}
		_, err := st.Write(appendEvent(nil, eventGap, at, binary.BigEndian.AppendUint64(nil, uint64(to-at))))
		return err
	}
	buf := make([]byte, 0, eventHeader+pieceMax)
	for _, p := range pieces {
		if err := gap(p.offset); err != nil {
			return err
		}
		if _, err := st.Write(appendEvent(buf[:0], p.kind, p.offset, p.data)); err != nil {
			return err
		}
		at = p.end()
	}
	if err := gap(end); err != nil {
		return err
	}
	return sendLast(st, info, end)
}

// outputMagic begins a file with a run's output. It is followed by the CRC-32C
// of the rest, and the events as on the wire.
const outputMagic = "holtrun\x01"

const outputHeader = len(outputMagic) + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeOutput encodes the events of a [RunOutput] for a file.
func EncodeOutput(events []holt.RunEvent) []byte {
	size := outputHeader
	for _, e := range events {
		size += wireSize(e)
	}
	b := append(make([]byte, 0, size), outputMagic...)
	b = append(b, 0, 0, 0, 0)
	for _, e := range events {
		switch e.Kind {
		case holt.RunStdout:
			b = appendEvent(b, eventStdout, e.Offset, e.Data)
		case holt.RunStderr:
			b = appendEvent(b, eventStderr, e.Offset, e.Data)
		case holt.RunGap:
			b = appendEvent(b, eventGap, e.Offset, binary.BigEndian.AppendUint64(nil, uint64(e.Dropped)))
		}
	}
	binary.BigEndian.PutUint32(b[len(outputMagic):], crc32.Checksum(b[outputHeader:], castagnoli))
	return b
}

// DecodeOutput decodes the result of EncodeOutput. Anything else is Corrupt.
func DecodeOutput(b []byte) ([]holt.RunEvent, error) {
	if len(b) < outputHeader || string(b[:len(outputMagic)]) != outputMagic {
		return nil, holt.Errorf(holt.Corrupt, "the file is not the output of a run")
	}
	if binary.BigEndian.Uint32(b[len(outputMagic):]) != crc32.Checksum(b[outputHeader:], castagnoli) {
		return nil, holt.Errorf(holt.Corrupt, "a run's output is damaged")
	}
	return decodeEvents(b[outputHeader:])
}

// decodeEvents decodes events of a run's output from offset 0.
func decodeEvents(b []byte) (events []holt.RunEvent, err error) {
	in, buf := bytes.NewReader(b), make([]byte, maxChunk)
	for at := int64(0); in.Len() > 0; {
		if kind := b[len(b)-in.Len()]; kind > eventGap {
			return nil, holt.Errorf(holt.Corrupt, "invalid event of kind %d in a run's output", kind)
		}
		e, err := readEvent(in, buf)
		if err == io.ErrUnexpectedEOF {
			err = holt.Errorf(holt.Corrupt, "a run's output is truncated")
		}
		if err == nil {
			at, err = vetEvent(e, at)
		}
		if err != nil {
			return nil, err
		}
		e.Data = bytes.Clone(e.Data)
		events = append(events, e)
	}
	return events, nil
}
