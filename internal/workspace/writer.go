package workspace

import (
	"encoding/json"
	"strings"
)

// mostWriterField bounds each field of a writer, bytes: it comes from outside.
const mostWriterField = 200

// bounded returns w with fields that any table can hold.
func (w Writer) bounded() Writer {
	for _, f := range []*string{&w.Kind, &w.Name, &w.Run, &w.Terminal, &w.Token} {
		if len(*f) > mostWriterField {
			*f = (*f)[:mostWriterField]
		}
		*f = strings.ToValidUTF8(*f, "?")
	}
	return w
}

func (w Writer) encode() []byte {
	b, _ := json.Marshal(w) // strings of valid UTF-8: cannot fail
	return b
}

func decodeWriter(b []byte) (w Writer, err error) {
	err = json.Unmarshal(b, &w)
	return w, err
}
