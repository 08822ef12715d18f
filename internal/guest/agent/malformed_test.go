package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"holt"
)

// Decoder errors may quote a guest's bytes; they are truncated and sanitised.
func TestMalformedIsSanitised(t *testing.T) {
	for _, sent := range []string{
		`{"result":{"now":"` + strings.Repeat("x", 256<<10) + `"}}`, `{"result":{"now":"\u001b[2J"}}`, `{"result":{"` + strings.Repeat("y", 256<<10) + `":1,"hostname":[]}}`,
	} {
		var b bytes.Buffer
		if err := writeMessage(&b, json.RawMessage(sent)); err != nil {
			t.Fatal(err)
		}
		err := readAnswer(&b, new(Identified))
		if holt.CodeOf(err) != holt.Corrupt || len(err.Error()) > 1<<10 || strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%.40s: %s, %d bytes: %.100q", sent, holt.CodeOf(err), len(err.Error()), err)
		}
	}
}
