package agent

import (
	"bytes"
	"io"
	"testing"
)

// Zeros are sent as a length and received as zeros.
func TestZerosAreSentAsLength(t *testing.T) {
	var wire bytes.Buffer
	w := newChunkWriter(&wire, maxChunk)
	want := append(append(make([]byte, 3*maxChunk+5), "end"...), make([]byte, maxChunk)...)
	if _, err := w.ReadFrom(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if err := w.end(); err != nil {
		t.Fatal(err)
	}
	if wire.Len() > maxChunk+100 {
		t.Errorf("%d bytes crossed", wire.Len())
	}
	dirty := bytes.NewBuffer(bytes.Repeat([]byte{1}, len(want)))
	dirty.Reset()
	if _, err := io.Copy(dirty, &chunkReader{r: &wire}); err != nil || !bytes.Equal(dirty.Bytes(), want) {
		t.Errorf("%d bytes came out, of %d: %v", dirty.Len(), len(want), err)
	}
}
